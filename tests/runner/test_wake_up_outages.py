"""The listener's connection is lost: it comes back, jobs that came meanwhile start, and the log stays short."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, NullPool, create_engine, text

from sa_jobqueue.events import JobSettled, LoopFailed, LoopRecovered
from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.registry import Registry
from sa_jobqueue.store.ear import PROBE_CHANNEL
from sa_jobqueue.testing import PostgresServer, start_postgres
from tests.support.databases import FAST, install
from tests.support.proxy import Fate, Proxy
from tests.support.runners import Recorder, add, running
from tests.support.waiting import PATIENCE, wait_until

HOUR = timedelta(hours=1)
LISTENERS = """FROM pg_stat_activity WHERE query LIKE 'LISTEN "jobqueue_%' AND application_name LIKE 'sa_jobqueue %'"""


@pytest.fixture
def jobs() -> Registry:
    """One handler that does nothing."""
    registry = Registry()
    registry.handler("work")(lambda: None)
    return registry


def _listener(engine: Engine, *, but: int | None = None) -> int:
    """The process that listens, once there is another than this."""

    def found() -> int | None:
        with engine.connect() as connection:
            pids = set(connection.execute(text(f"SELECT pid {LISTENERS}")).scalars()) - {but}
        return pids.pop() if pids else None

    return wait_until(lambda: found() or 0, what="a listener")


def _listens(statement: str) -> bool:
    return statement.startswith("LISTEN ") and PROBE_CHANNEL not in statement


def _insert(engine: Engine) -> None:
    with engine.begin() as connection:
        add(connection, "work")


def _words(recorder: Recorder) -> tuple[list[LoopFailed], list[LoopRecovered]]:
    return (
        [event for event in recorder.of(LoopFailed) if event.loop == "listen"],
        [event for event in recorder.of(LoopRecovered) if event.loop == "listen"],
    )


def _wait_for_recoveries(recorder: Recorder, count: int) -> None:
    wait_until(lambda: len(_words(recorder)[1]) == count, what="the recovery")


def test_a_terminated_listener_is_replaced(engine: Engine, jobs: Registry) -> None:
    """Twenty times in a row; each time one word about the loss and one about its end, and jobs start by wake-up."""
    with running(jobs, engine.url, poll_interval=HOUR) as recorder:
        pid = None
        for count in range(1, 21):
            pid = _listener(engine, but=pid)
            _wait_for_recoveries(recorder, count - 1)
            _insert(engine)
            recorder.wait_for(JobSettled, count=count)
            with engine.begin() as connection:
                assert connection.execute(
                    text("SELECT pg_terminate_backend(:pid)"), {"pid": pid}
                ).scalar_one()
        _listener(engine, but=pid)
        _wait_for_recoveries(recorder, 20)
    assert len(_words(recorder)[0]) == 20
    assert {event.loop for event in recorder.of(LoopFailed)} == {"listen"}


def test_what_came_meanwhile_starts_with_the_new_connection(
    engine: Engine, jobs: Registry, proxy: Proxy
) -> None:
    """It was notified to nobody, so the runner looks at the table after it listens again."""
    with running(jobs, engine.url, poll_interval=HOUR, listen_url=proxy.url) as recorder:
        pid = _listener(engine)
        _insert(engine)
        recorder.wait_for(JobSettled)
        held = proxy.on(_listens, Fate.HOLD)
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        held.wait()
        wait_until(lambda: _waiting(engine) == 0, what="a dispatcher that knows")
        _insert(engine)
        held.release()
        recorder.wait_for(JobSettled, count=2)


def _waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        query = "SELECT count(*) FROM jobqueue_idle WHERE waiting_until > clock_timestamp()"
        return int(connection.execute(text(query)).scalar_one())


def test_a_silent_connection_is_noticed(
    engine: Engine, jobs: Registry, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy keeps it open with nobody behind it: the check gets no answer, and a new connection does."""
    monkeypatch.setattr("sa_jobqueue.runner.settings.SHORTEST_DEADLINE", timedelta(milliseconds=500))
    monkeypatch.setattr("sa_jobqueue.runner.listening.CHECK_INTERVAL", 0.2)
    short = timedelta(seconds=1.5)
    with running(jobs, engine.url, lease=short, poll_interval=HOUR, listen_url=proxy.url) as recorder:
        _listener(engine)
        with proxy.mute():
            wait_until(lambda: _words(recorder)[0], what="the loss")
        wait_until(lambda: _words(recorder)[1], what="the recovery")
        _insert(engine)
        recorder.wait_for(JobSettled)
    assert "the server has not answered within 0.5 s" in _words(recorder)[0][0].error


def test_tables_that_were_made_anew_are_heard(
    engine: Engine, jobs: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to nothing and up again under a runner: new jobs are notified in another channel, and it listens there."""
    monkeypatch.setattr("sa_jobqueue.runner.listening.CHECK_INTERVAL", 0.2)
    with running(jobs, engine.url, poll_interval=HOUR) as recorder:
        _listener(engine)
        wait_until(lambda: _waiting(engine) == 1, what="a runner that waits")
        with engine.begin() as connection:
            operations = Operations(MigrationContext.configure(connection))
            migrate_jobqueue(operations, LATEST, 0)
            migrate_jobqueue(operations, 0, LATEST)
        wait_until(lambda: _waiting(engine) == 1, what="a runner that waits there")
        _insert(engine)
        recorder.wait_for(JobSettled)
    assert "dropped" in _words(recorder)[0][0].error
    assert len(_words(recorder)[1]) == 1


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test may halt."""
    with start_postgres(settings=FAST) as server:
        install(server.url())
        yield server


def test_the_server_is_away_for_a_while(own_server: PostgresServer, jobs: Registry) -> None:
    """Several tries fail, and the log has two lines about them."""
    engine = create_engine(own_server.url(), poolclass=NullPool)
    with running(jobs, own_server.url(), poll_interval=HOUR) as recorder:
        pid = _listener(engine)
        own_server.halt("immediate")
        threading.Event().wait(2.0)  # the outage
        own_server.start()
        _listener(engine, but=pid)
        wait_until(lambda: _words(recorder)[1], what="the recovery")
        _insert(engine)
        recorder.wait_for(JobSettled, timeout=PATIENCE)
    lost, recovered = _words(recorder)
    assert (len(lost), len(recovered)) == (1, 1)
    assert recovered[0].failures > 1
