"""Claims: who gets what, in which order, and what a second runner sees."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, func, select, text

from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.statements import claim
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, keyed, read_job, refuse, server_time

HOUR = timedelta(hours=1)


def claim_ids(store: Store, quotas: dict[str, int], *, kinds: tuple[str, ...] = ("test",)) -> list[int]:
    return [job.id for job in store.claim(token=uuid4(), quotas=quotas, kinds=kinds, lease=MINUTE)]


def test_a_claimed_job_is_leased(engine: Engine, store: Store, token: UUID) -> None:
    """A claim writes token, lease, owner and one attempt more, and leaves everything else alone."""
    job_id = add_job(engine, payload={"a": [1]}, max_attempts=7, expires_at=func.now() + HOUR, **keyed("key"))
    before = read_job(engine, job_id)
    (claimed,) = store.claim(token=token, quotas={"default": 5}, kinds=["test"], lease=MINUTE)
    after = read_job(engine, job_id)
    assert (after.status, after.lease_token, after.leased_by) == ("running", token, "runner-1")
    assert (after.attempts, after.returned) == (1, 0)
    assert after.lease_until == after.updated_at + MINUTE
    assert after.updated_at > before.updated_at
    written = {"status", "lease_token", "lease_until", "leased_by", "attempts", "updated_at"}
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == written
    assert (claimed.id, claimed.token, claimed.kind, claimed.queue) == (job_id, token, "test", "default")
    assert (claimed.payload, claimed.payload_version, claimed.priority) == ({"a": [1]}, 1, 5)
    assert (claimed.attempts, claimed.returned, claimed.max_attempts) == (1, 0, 7)
    assert (claimed.run_at, claimed.created_at) == (before.run_at, before.created_at)
    assert (claimed.idempotency_key, claimed.expired) == ("key", False)


def test_order_within_and_across_queues(engine: Engine, store: Store) -> None:
    """The answer goes by the queues as asked, then priority, due time and id."""
    now = server_time(engine)
    late = add_job(engine, queue="a", run_at=now - MINUTE)
    early = add_job(engine, queue="a", run_at=now - HOUR)
    urgent = add_job(engine, queue="a", priority=0, run_at=now)
    first, second = (add_job(engine, queue="b", priority=9, run_at=now - HOUR) for _ in range(2))
    assert claim_ids(store, {"b": 5, "a": 5}) == [first, second, urgent, early, late]


def test_a_quota_takes_the_best(engine: Engine, store: Store) -> None:
    """A quota smaller than the queue takes the most urgent jobs, over the edge of one priority into the next."""
    now = server_time(engine)
    ids = {
        (priority, age): add_job(engine, priority=priority, run_at=now - age * MINUTE)
        for priority in (9, 3, 0)
        for age in (1, 2)
    }
    assert claim_ids(store, {"default": 3}) == [ids[0, 2], ids[0, 1], ids[3, 2]]


def test_nothing_asked_nothing_sent(store: Store) -> None:
    """Without a free slot or a known kind there is no statement, not even a connection."""
    assert store.claim(token=uuid4(), quotas={"default": 0}, kinds=["test"], lease=MINUTE) == []
    assert store.claim(token=uuid4(), quotas={}, kinds=["test"], lease=MINUTE) == []
    assert store.claim(token=uuid4(), quotas={"default": 1}, kinds=[], lease=MINUTE) == []
    assert store._connection._connection is None


def test_what_is_not_claimed(engine: Engine, store: Store) -> None:
    """Future jobs, unknown kinds and other queues stay untouched, an unknown kind ahead holds nobody back."""
    unknown = add_job(engine, kind="unknown", priority=0)
    future = add_job(engine, run_at=func.now() + HOUR)
    elsewhere = add_job(engine, queue="other")
    mine = add_job(engine, priority=9)
    before = [read_job(engine, job_id) for job_id in (unknown, future, elsewhere)]
    assert claim_ids(store, {"default": 1}) == [mine]
    assert claim_ids(store, {"default": 10}) == []
    assert [read_job(engine, job_id) for job_id in (unknown, future, elsewhere)] == before


def test_a_job_past_its_expiry_says_so(engine: Engine, store: Store) -> None:
    """ "Do not start after" is judged by the database's clock at the claim; the runner aborts under its token."""
    past, future = (add_job(engine, expires_at=func.now() + away) for away in (-MINUTE, HOUR))
    claimed = store.claim(token=uuid4(), quotas={"default": 5}, kinds=["test"], lease=MINUTE)
    assert {job.id: job.expired for job in claimed} == {past: True, future: False}


def test_a_second_claim_skips_what_the_first_has_not_committed(engine: Engine, other: Store) -> None:
    """Two claims at once share the queue without waiting: the second takes the rest, and no job is taken twice."""
    ids = [add_job(engine) for _ in range(5)]
    parameters = {
        "queues": ["default"],
        "quotas": [2],
        "kinds": ["test"],
        "token": uuid4(),
        "lease": MINUTE,
        "runner": "first",
    }
    with engine.begin() as first:
        taken = [row.id for row in first.execute(claim.claim(), parameters)]
        rest = claim_ids(other, {"default": 10})
    assert sorted(taken) == ids[:2]
    assert rest == ids[2:]
    assert {read_job(engine, job_id).attempts for job_id in ids} == {1}


def test_no_more_rows_are_locked_than_taken(engine: Engine) -> None:
    """A row locked beyond the quota would be hidden from every other runner while the claim runs."""
    for number in range(40):
        add_job(engine, queue=f"q{number % 2}", priority=number % 4)
    parameters = {
        "queues": ["q0", "q1"],
        "quotas": [7, 1],
        "kinds": ["test"],
        "token": uuid4(),
        "lease": MINUTE,
        "runner": "first",
    }
    free = select(jobs.c.id).where(jobs.c.status == "ready").with_for_update(skip_locked=True)
    with engine.begin() as first, engine.begin() as second:
        assert len(first.execute(claim.claim(), parameters).all()) == 8
        assert len(second.execute(free).all()) == 32


def test_a_lost_claim_is_given_back(engine: Engine, store: Store, token: UUID) -> None:
    """After a lost answer the token alone gives every job of that claim back, attempt included, and nobody else's."""
    ids = [add_job(engine) for _ in range(3)]
    store.claim(token=token, quotas={"default": 2}, kinds=["test"], lease=MINUTE)
    kept = claim_ids(store, {"default": 1})
    before = read_job(engine, ids[0])
    assert store.release_claim(token=token) == 2
    after = read_job(engine, ids[0])
    assert (after.status, after.attempts, after.returned) == ("ready", 1, 1)
    assert (after.settled_token, after.lease_token, after.leased_by) == (token, None, None)
    assert (after.run_at, after.finished_at) == (before.run_at, None)
    assert read_job(engine, kept[0]).status == "running"
    assert store.release_claim(token=token) == 0


def test_an_answer_that_always_breaks_comes_to_rest(engine: Engine, store: Store) -> None:
    """A job whose claim is lost again and again ends in dead: it is given back max_attempts times, then charged."""
    job_id = add_job(engine, max_attempts=2)
    seen = []
    for _ in range(4):
        token = uuid4()
        store.claim(token=token, quotas={"default": 1}, kinds=["test"], lease=MINUTE)
        store.release_claim(token=token)
        row = read_job(engine, job_id)
        seen.append((row.status, row.attempts, row.returned, row.reason))
    assert seen == [
        ("ready", 1, 1, None),
        ("ready", 2, 2, None),
        ("ready", 3, 2, None),
        ("dead", 4, 2, "exhausted"),
    ]


def test_a_lost_claim_with_a_request_is_cancelled(engine: Engine, store: Store, token: UUID) -> None:
    """A cancellation asked for in between is honoured."""
    job_id = add_job(engine)
    store.claim(token=token, quotas={"default": 1}, kinds=["test"], lease=MINUTE)
    with engine.begin() as connection:
        connection.execute(jobs.update().values(cancel_requested_at=func.now()))
    store.release_claim(token=token)
    row = read_job(engine, job_id)
    assert (row.status, row.reason, row.finished_at is None) == ("cancelled", "cancelled", False)


def test_a_foreign_key_is_no_obstacle(engine: Engine, store: Store) -> None:
    """An application that writes a row which points at a waiting job does not keep it from being claimed meanwhile."""
    job_id = add_job(engine)
    with engine.begin() as application:
        application.execute(
            select(jobs.c.id).where(jobs.c.id == job_id).with_for_update(read=True, key_share=True)
        )
        assert claim_ids(store, {"default": 5}) == [job_id]


def test_a_lost_claim_is_given_back_around_a_lock(engine: Engine, store: Store, token: UUID) -> None:
    """A row that an application has locked is not waited for; the next release, a renewal later, gives it back."""
    ids = [add_job(engine) for _ in range(3)]
    store.claim(token=token, quotas={"default": 3}, kinds=["test"], lease=MINUTE)
    with engine.begin() as application:
        application.execute(select(jobs.c.id).where(jobs.c.id == ids[1]).with_for_update())
        assert store.release_claim(token=token) == 2
        assert [read_job(engine, job_id).status for job_id in ids] == ["ready", "running", "ready"]
    assert store.release_claim(token=token) == 1
    assert [read_job(engine, job_id).returned for job_id in ids] == [1, 1, 1]


def test_a_release_that_is_refused_holds_back_no_other(engine: Engine, store: Store, token: UUID) -> None:
    """Of a lost claim all but the row that somebody's trigger protects come back at once, attempts included."""
    ids = [add_job(engine) for _ in range(5)]
    store.claim(token=token, quotas={"default": 5}, kinds=["test"], lease=MINUTE)
    refuse(engine, ids[1], "RAISE 'no'")
    assert store.release_claim(token=token) == 4
    rows = [read_job(engine, job_id) for job_id in ids]
    assert [(row.status, row.returned) for row in rows] == [
        ("running", 0) if row.id == ids[1] else ("ready", 1) for row in rows
    ]


def test_three_runners_drain_a_queue(engine: Engine) -> None:
    """Runners that claim and complete at the same time share the work: every job is run once, by one of them."""
    with engine.begin() as connection:
        connection.execute(
            jobs.insert(), [{"kind": "test", "priority": number % 10} for number in range(300)]
        )
    together = threading.Barrier(3)

    def drain(name: str) -> list[int]:
        store = Store(engine, name=name)
        done: list[int] = []
        together.wait()
        while claimed := store.claim(token=uuid4(), quotas={"default": 7}, kinds=["test"], lease=MINUTE):
            todo = [Settlement(job.id, job.token, Verb.COMPLETE) for job in claimed]
            while todo:
                # Busy: a claim that began before ours was committed holds the row for the length of its statement.
                landings = [answer.landing for answer in store.settle(todo)]
                assert set(landings) <= {Landing.LANDED, Landing.BUSY}
                todo = [each for each, landing in zip(todo, landings, strict=True) if landing is Landing.BUSY]
            done += [job.id for job in claimed]
        store.close()
        return done

    with ThreadPoolExecutor(3) as pool:
        shares = list(pool.map(drain, ["a", "b", "c"]))
    done = [job_id for share in shares for job_id in share]
    assert sorted(done) == sorted(set(done))
    with engine.connect() as connection:
        rows = connection.execute(select(jobs.c.status, jobs.c.attempts)).all()
    assert set(rows) == {("done", 1)}
    assert len(rows) == len(done) == 300


def test_a_row_that_nobody_can_claim_is_passed_over(engine: Engine, store: Store, token: UUID) -> None:
    """Somebody's trigger stops the head of one queue: what is behind it and other queues get their full quotas."""
    ids = [add_job(engine) for _ in range(6)]
    others = [add_job(engine, queue="other") for _ in range(3)]
    refuse(engine, ids[0], "RAISE 'no'")
    claimed = store.claim(token=token, quotas={"default": 3, "other": 2}, kinds=["test"], lease=MINUTE)
    assert [job.id for job in claimed] == [*ids[1:4], *others[:2]]
    assert {job.token for job in claimed} == {read_job(engine, ids[1]).lease_token} == {token}
    assert (read_job(engine, ids[0]).status, read_job(engine, ids[0]).attempts) == ("ready", 0)
    assert claim_ids(store, {"default": 9}) == ids[4:]


def test_what_was_claimed_around_a_row_is_answered_whatever_comes_then(engine: Engine, store: Store) -> None:
    """The disk is full in the middle: jobs that are ours already are told, not left to their leases."""
    ids = [add_job(engine) for _ in range(4)]
    full = f"IF new.id = {ids[3]} THEN RAISE 'full' USING ERRCODE = '53100'"
    refuse(engine, ids[0], f"RAISE 'no'; END IF; {full}")
    assert claim_ids(store, {"default": 4}) == ids[1:2]
    assert [read_job(engine, job_id).status for job_id in ids] == ["ready", "running", "ready", "ready"]


def test_attempts_at_their_limit(engine: Engine, store: Store, token: UUID) -> None:
    """The largest number that the column holds stops neither the claim nor what follows it."""
    most = 2**31 - 1
    first = add_job(engine, attempts=most, returned=most, max_attempts=1)
    neighbour = add_job(engine)
    claimed = store.claim(token=token, quotas={"default": 5}, kinds=["test"], lease=MINUTE)
    assert {job.id: job.attempts for job in claimed} == {first: most, neighbour: 1}
    settled = store.settle([Settlement(job.id, token, Verb.RELEASE) for job in claimed])
    assert [(answer.landing, answer.fault) for answer in settled] == [(Landing.LANDED, None)] * 2
    assert read_job(engine, first).returned == most


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
@pytest.mark.parametrize("odd", ["-infinity", "0044-03-15 BC", "0001-01-01T00:00:00Z"])
def test_times_that_python_can_not_hold(engine: Engine, store: Store, odd: str, zone: str) -> None:
    """Infinity and years BC are valid in PostgreSQL: such a job is claimed with its neighbours, its times clamped."""
    ids = [add_job(engine) for _ in range(3)]
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} SET timezone TO '{zone}'")
        connection.execute(
            text(
                "UPDATE jobqueue_jobs SET run_at = cast(:odd AS timestamptz), created_at = 'infinity' WHERE id = :id"
            ),
            {"odd": odd, "id": ids[1]},
        )
    engine.dispose()
    claimed = store.claim(token=uuid4(), quotas={"default": 5}, kinds=["test"], lease=MINUTE)
    assert [job.id for job in claimed] == [ids[1], ids[0], ids[2]]
    assert claimed[0].run_at.astimezone(UTC).year == 1
    assert claimed[0].created_at.astimezone(UTC).year == 9999
