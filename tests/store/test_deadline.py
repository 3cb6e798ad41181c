"""No answer is waited for longer than the deadline: of a server that is stopped, and of one that is merely held up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import capabilities
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.queries.schema import comment
from sa_jobqueue.statements.claim import claim
from sa_jobqueue.store import driver
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.store.store import Store
from sa_jobqueue.store.trouble import because_of_a_row, nothing_landed, refused
from tests.support.jobs import MINUTE, add_job, read_job
from tests.support.proxy import Fate, Proxy, sends

SHORT = timedelta(seconds=1)


@pytest.fixture
def bounded(proxy: Proxy) -> Iterator[Store]:
    """A store behind the proxy that waits for a second."""
    engine = runner_engine(proxy.url, "runner-1", deadline=SHORT)
    store = Store(engine, name="runner-1")
    yield store
    store.close()
    engine.dispose()


def _claim(store: Store) -> int:
    return len(store.claim(token=uuid4(), quotas={"default": 1}, kinds=["test"], lease=MINUTE))


def _fails(store: Store) -> DBAPIError:
    """The error of a claim, which leaves it open whether it landed."""
    with pytest.raises(DBAPIError) as raised:
        _claim(store)
    error = raised.value
    assert "not answered within 1 s" in str(error.orig)
    assert error.connection_invalidated
    assert (refused(error), because_of_a_row(error), nothing_landed(error)) == (False, False, False)
    return error


@pytest.mark.parametrize("fate", [Fate.SWALLOW, Fate.SWALLOW_ANSWER])
@pytest.mark.parametrize("uses", [0, 12])
def test_an_answer_that_never_comes(
    engine: Engine, proxy: Proxy, bounded: Store, fate: Fate, uses: int
) -> None:
    """The connection lives and is silent: the call ends, and the next one has another connection. Prepared or not."""
    for _ in range(uses):
        _claim(bounded)
    proxy.on(sends(claim()), fate)
    job = add_job(engine)
    _fails(bounded)
    assert read_job(engine, job).status == ("running" if fate is Fate.SWALLOW_ANSWER else "ready")
    bounded.reset()
    assert _claim(bounded) == (0 if fate is Fate.SWALLOW_ANSWER else 1)


@pytest.mark.skipif(not capabilities.has_cancel_safe(), reason="this libpq can't ask without blocking")
def test_a_server_that_is_held_up_is_asked_to_stop(engine: Engine, bounded: Store) -> None:
    """Behind somebody's lock on the whole table nothing piles up, and nothing lands once the lock is gone."""
    job = add_job(engine)
    _claim(bounded)
    other = add_job(engine)
    with engine.connect() as migration:
        migration.execute(text("LOCK TABLE jobqueue_jobs IN ACCESS EXCLUSIVE MODE"))
        for _ in range(2):
            _fails(bounded)
            bounded.reset()
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IS NOT NULL")
        assert migration.scalar(waiting) == 0
        migration.rollback()
    assert [read_job(engine, one).status for one in (job, other)] == ["running", "ready"]
    assert _claim(bounded) == 1


def test_an_answer_after_the_server_was_asked_counts_as_none(
    engine: Engine, proxy: Proxy, bounded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation on its way may hit the next statement, so this connection gets none."""
    held = proxy.on(sends(claim()), Fate.HOLD)
    monkeypatch.setattr(driver.BoundedConnection, "_ask_to_cancel", lambda *_: held.release())
    job = add_job(engine)
    _fails(bounded)
    assert read_job(engine, job).status == "running"


def test_a_slow_answer_is_an_answer(proxy: Proxy, bounded: Store) -> None:
    """Within the deadline nobody asks for anything, and the connection goes on."""
    held = proxy.on(sends(comment()), Fate.HOLD)

    def let_go() -> None:
        held.wait()
        held.release()

    releaser = threading.Thread(target=let_go)
    releaser.start()
    assert bounded.installed_version()
    releaser.join()
    connection = bounded._connection._connection
    assert bounded.installed_version()
    assert bounded._connection._connection is connection


def test_a_server_that_accepts_and_says_nothing(proxy: Proxy, bounded: Store) -> None:
    """To connect is bounded as well, and has sent nothing that could land."""
    with proxy.mute(), pytest.raises(DBAPIError) as raised:
        bounded.installed_version()
    assert nothing_landed(raised.value)
    assert bounded.installed_version()


def test_hosts_are_looked_up_where_other_threads_go_on(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is given addresses beside the names; all of a host's addresses are tried in order."""
    asked: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        return [
            (socket.AF_INET, 0, 0, "", (address, 0)) for address in ("127.0.0.9", "127.0.0.1", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    engine = runner_engine(proxy.url.set(host="db.example"), "runner-1", deadline=SHORT)
    with engine.connect() as connection:
        info = connection.connection.driver_connection.info
        assert (info.host, info.hostaddr) == ("db.example", "127.0.0.1")
    engine.dispose()
    assert asked == ["db.example"]


def test_a_host_that_nobody_knows(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its name, and as trouble with connecting."""

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    engine = runner_engine(proxy.url.set(host="db.example"), "runner-1", deadline=SHORT)
    with pytest.raises(DBAPIError, match=r"host 'db\.example'") as raised:
        engine.connect()
    assert isinstance(raised.value.orig, psycopg.OperationalError)
    assert nothing_landed(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"host": "/tmp"}, {}),
        ({"host": "127.0.0.1"}, {}),
        ({"host": "::1"}, {}),
        ({"host": "a", "hostaddr": "10.0.0.1"}, {}),
        ({"host": "a", "port": 5433}, {"host": "a,a", "hostaddr": "a1,a2"}),
        ({"host": "a,b", "port": "1,2"}, {"host": "a,a,b,b", "hostaddr": "a1,a2,b1,b2", "port": "1,1,2,2"}),
        ({"host": "a"}, {"host": "a,a", "hostaddr": "a1,a2"}),
        ({"host": "a,b", "port": "1,2,3"}, {}),
    ],
)
def test_what_is_looked_up(
    given: dict[str, Any], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names alone, each with its own port; sockets, addresses and what is amiss are left to the driver."""
    monkeypatch.setattr(driver, "_resolve", lambda host: [f"{host}1", f"{host}2"])
    assert driver._addresses(given) == expected


def test_the_url_is_used_as_it_is(database_url: str) -> None:
    """A socket's folder in the URL's query goes to the driver unchanged."""
    assert driver._addresses(dict(make_url(database_url).query)) == {}
