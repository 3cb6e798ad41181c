"""No transaction is open while a handler runs: strict limits of the runner's role and a locked table cost nothing."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, make_url, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import JobSettled, LoopFailed, LoopRecovered
from sa_jobqueue.registry import Registry
from sa_jobqueue.testing import PostgresServer
from tests.support.runners import add, row, running
from tests.support.waiting import wait_until

LIMITS = {
    "idle_in_transaction_session_timeout": "500ms",
    "statement_timeout": "1s",
    "lock_timeout": "500ms",
}
# A new connection asks the server about itself, in a transaction of a moment; what counts is what stays open.
SESSIONS = text(
    "SELECT state, backend_xmin IS NOT NULL AS holds,"
    " state LIKE '%in transaction%' AND clock_timestamp() - state_change > interval '200 ms' AS stays_open"
    " FROM pg_stat_activity"
    " WHERE application_name LIKE 'sa_jobqueue %' AND datname = current_database()"
)


@pytest.fixture
def strict_url(engine: Engine, database_url: str, server: PostgresServer) -> Iterator[str]:
    """The database as a role sees it that may wait for nothing, and has no more rights than a runner needs."""
    role = f"sajq_runner_{secrets.token_hex(4)}"
    limits = LIMITS | ({"transaction_timeout": "2s"} if server.version >= 17 else {})
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'"))
        for name, value in limits.items():
            connection.execute(text(f"ALTER ROLE {role} SET {name} = '{value}'"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE ON jobqueue_jobs TO {role}"))
    yield make_url(database_url).set(username=role, password="secret").render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))


class _Sampler:
    """Looks at the runner's sessions all the time, from a thread."""

    def __init__(self, engine: Engine) -> None:
        self.idle_in_transaction = 0
        self.most_sessions = 0
        self.holding_while_idle = 0
        self.looks = 0
        self._engine = engine
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not self._stop.wait(0.05):
                sessions = connection.execute(SESSIONS).all()
                self.looks += 1
                self.most_sessions = max(self.most_sessions, len(sessions))
                self.idle_in_transaction += sum(one.stays_open or False for one in sessions)
                self.holding_while_idle += sum(one.state == "idle" and one.holds for one in sessions)


def test_long_handlers_and_a_locked_table(engine: Engine, strict_url: str) -> None:
    """Calls fail and are made again, no session is ever idle in a transaction, and every job runs once."""
    jobs, runs, gate = Registry(), Counter[int](), threading.Event()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1
        gate.wait(0.8 + ctx.id % 5 * 0.4)  # some end before, some under and some after the lock

    with engine.begin() as connection:
        ids = [add(connection, "work") for _ in range(20)]
    with (
        _Sampler(engine) as sampler,
        running(jobs, strict_url, queues={"default": 10}, lease=timedelta(seconds=60)) as recorder,
    ):
        recorder.wait_for(JobSettled, count=1)
        with engine.begin() as application:
            application.execute(text("LOCK TABLE jobqueue_jobs IN ACCESS EXCLUSIVE MODE"))
            wait_until(lambda: any(event.loop == "settle" for event in recorder.of(LoopFailed)))
        recorder.wait_for(JobSettled, count=20)
        failing = {event.loop for event in recorder.of(LoopFailed)}
        wait_until(lambda: {event.loop for event in recorder.of(LoopRecovered)} == failing)
    assert len(recorder.of(LoopFailed)) == len(recorder.of(LoopRecovered)) == len(failing)
    assert sampler.looks > 20
    assert (sampler.idle_in_transaction, sampler.holding_while_idle) == (0, 0)
    assert sampler.most_sessions in (5, 6)  # for a moment there is the other end of what is listened to
    assert runs == dict.fromkeys(ids, 1)
    assert {(row(engine, job).status, row(engine, job).attempts) for job in ids} == {("done", 1)}


def test_a_server_that_ends_idle_sessions(engine: Engine, strict_url: str, database_url: str) -> None:
    """Each loop finds its connection gone, makes another one and goes on: every job runs once."""
    jobs, runs = Registry(), Counter[int]()

    @jobs.handler("work")
    def work(ctx: JobContext) -> None:
        runs[ctx.id] += 1

    role = make_url(strict_url).username
    ended = text(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sa_jobqueue %' AND usename = :role"
    )
    with engine.begin() as connection:
        connection.execute(text(f"ALTER ROLE {role} SET idle_session_timeout = '300ms'"))
    ids = []
    with (
        running(
            jobs, strict_url, lease=timedelta(seconds=30), poll_interval=timedelta(seconds=2)
        ) as recorder,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher,
    ):
        for round_ in range(1, 3):
            with engine.begin() as connection:
                ids += [add(connection, "work") for _ in range(3)]
            recorder.wait_for(JobSettled, count=3 * round_)
            wait_until(lambda: watcher.scalar(ended, {"role": role}) == 0, what="no session of the runner")
    assert runs == dict.fromkeys(ids, 1)
    assert {(row(engine, job).status, row(engine, job).attempts) for job in ids} == {("done", 1)}
