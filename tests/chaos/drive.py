"""One run: the fleet at work, one strike after the other, and then rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from random import Random

from sa_jobqueue.testing import PostgresServer, start_postgres
from tests.chaos import checks, ledger
from tests.chaos.faults import DATABASE, FAULTS, World
from tests.chaos.fleet import Fleet, members
from tests.chaos.load import Load
from tests.chaos.report import Report, Strike
from tests.chaos.watch import Watch, connect
from tests.support.databases import FAST, install
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

#: Seconds that are waited for what must come. What is long before that is judged by the report.
PATIENCE = 120.0
#: Where a run tells how it gets on.
Tell = Callable[[str], None]
_CLAIMS = """
    SELECT leased_by, extract(epoch FROM min(at))::float FROM chaos_audit
    WHERE seq > %(seq)s AND new_status = 'running' AND at >= to_timestamp(%(since)s) GROUP BY leased_by
"""
_RESCUE = """
    SELECT greatest(max(extract(epoch FROM at - greatest(lease_until, to_timestamp(%(until)s)))::float), 0)
    FROM chaos_rescues WHERE seq > %(seq)s AND at >= to_timestamp(%(since)s)
"""
_CLAIMED = """
    SELECT count(*) FROM chaos_claims
    WHERE seq > %(seq)s AND at BETWEEN to_timestamp(%(since)s) AND to_timestamp(%(until)s)
"""
_SUMS = {
    "jobs": "SELECT count(*) FROM chaos_audit WHERE op = 'INSERT'",
    "runs": "SELECT count(*) FROM chaos_runs",
    "runs that were cut off": "SELECT count(*) FROM chaos_runs WHERE ended_at IS NULL",
    "claims": "SELECT count(*) FROM chaos_claims",
    "completions": "SELECT count(*) FROM chaos_completions",
    "effects": "SELECT count(*) FROM chaos_effects",
    "rescued": "SELECT count(*) FROM chaos_rescues",
    "dead": "SELECT count(*) FROM chaos_ends WHERE status = 'dead'",
    "cancelled": "SELECT count(*) FROM chaos_ends WHERE status = 'cancelled'",
    "pruned": "SELECT count(*) FROM chaos_ends WHERE pruned",
}


def every_kind(chance: Random) -> list[tuple[str, ...]]:
    """Strikes in which each kind comes once; some come together."""
    kinds = chance.sample(sorted(FAULTS), len(FAULTS))
    strikes: list[tuple[str, ...]] = []
    while kinds:
        (size,) = chance.choices([1, 2, 3], [7, 3, 1])
        strikes.append(tuple(kinds[:size]))
        del kinds[:size]
    return strikes


def run(
    *, seed: int, jobs: int = 0, minutes: float = 0, longest: float = 2.0, tell: Tell = lambda _: None
) -> Report:
    """Every kind of fault at least once, and again until there were so many jobs and it took so long."""
    with ExitStack() as stack:
        server = stack.enter_context(
            start_postgres(settings={**FAST, "max_connections": "100", "shared_buffers": "256MB"}, tcp=True)
        )
        server.create_database(DATABASE)
        url = server.url(DATABASE, tcp=True)
        install(url)
        with connect(url) as connection:
            ledger.create(connection)
        world = stack.enter_context(_world(server, url, longest))
        load = Load(url, seed=seed)
        report = Report(seed=seed, server=server.description)
        with world.fleet.running():
            _work(world, load, report, tell, seed=seed, jobs=jobs, seconds=minutes * 60)
        _account(world, load, report)
        return report


@contextmanager
def _world(server: PostgresServer, url: str, longest: float) -> Iterator[World]:
    with closing(Proxy(url)) as proxy, closing(Watch(url)) as watch:
        fleet = Fleet(members(url, proxy.url.render_as_string(hide_password=False)))
        yield World(server, url, proxy, fleet, watch, longest)


def _work(
    world: World, load: Load, report: Report, tell: Tell, *, seed: int, jobs: int, seconds: float
) -> None:
    chance = Random(seed)
    began, began_at = time.monotonic(), time.time()
    with load.going_on():
        report.start = _recover(world, report, "the start", 0, began_at) or PATIENCE
        # Without its producers it would go on for ever.
        while not report.strikes or (
            not load.faults and (len(load.promises) < jobs or time.monotonic() - began < seconds)
        ):
            for kinds in every_kind(chance):
                strike = _strike(world, report, kinds, chance)
                report.strikes.append(strike)
                tell(f"{time.monotonic() - began:6.0f} s {len(load.promises):7,} jobs  {strike}")
                world.proxy.sent.clear()
    calm = time.monotonic()
    unfinished = "SELECT count(*) FROM jobqueue_jobs WHERE status IN ('ready', 'running')"
    try:
        wait_until(lambda: world.watch.value(unfinished) == 0, timeout=PATIENCE, what="rest")
    except AssertionError as error:
        report.remarks.append(str(error))
    report.rest = time.monotonic() - calm
    report.seconds = time.monotonic() - began


def _strike(world: World, report: Report, kinds: Sequence[str], chance: Random) -> Strike:
    """Strike, wait for the end of it, and then until every runner claims again."""
    seq = world.watch.value("SELECT coalesce(max(seq), 0) FROM chaos_audit")
    seeds = [chance.random() for _ in kinds]
    struck, before = time.time(), world.fleet.lines()
    with ThreadPoolExecutor() as hands:
        list(hands.map(lambda kind, own: FAULTS[kind](world, Random(own)), kinds, seeds))
    lifted, after = time.time(), world.fleet.lines()
    recovered = _recover(world, report, " and ".join(kinds), seq, lifted)
    span = {"seq": seq, "since": struck, "until": lifted}
    return Strike(
        tuple(kinds),
        seconds=lifted - struck,
        recovery=recovered,
        rescue=world.watch.value(_RESCUE, span),
        claims=world.watch.value(_CLAIMED, span),
        lines=[after[name] - before[name] for name in after],
    )


def _recover(world: World, report: Report, kinds: str, seq: int, since: float) -> float | None:
    """Seconds until every runner has claimed; None when one has not for a long time."""
    found: dict[str, float] = {}

    def all_have_claimed() -> bool:
        found.update(world.watch.rows(_CLAIMS, {"seq": seq, "since": since}))
        return found.keys() >= world.fleet.names

    try:
        wait_until(all_have_claimed, timeout=PATIENCE)
    except AssertionError:
        report.remarks.append(f"after {kinds}: no claim by {', '.join(world.fleet.names - found.keys())}")
        return None
    return max(found.values()) - since


def _account(world: World, load: Load, report: Report) -> None:
    report.remarks += [f"a producer or the operator ended: {error!r}" for error in load.faults]
    for member in world.fleet.members:
        report.remarks += member.surprises
        report.ends.update(member.ends)
        report.logs[member.name] = member.log
    with connect(world.url) as connection:
        ledger.promise(connection, load.promises)
        connection.execute("ANALYZE")
        report.sums = {
            name: connection.execute(query.encode()).fetchall()[0][0] for name, query in _SUMS.items()
        }
        report.offenders = checks.offenders(connection)
