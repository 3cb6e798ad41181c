"""The ear: what it hears of the database that the jobs are in, and what it can tell about why it hears nothing."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.exc import OperationalError

from sa_jobqueue.store import ear as ear_module
from sa_jobqueue.store.ear import Ear
from sa_jobqueue.store.engine import runner_engine
from sa_jobqueue.testing import PostgresServer
from tests.support.pgbouncer import pgbouncer
from tests.support.proxy import Proxy


def _engine(url: URL | str, *, deadline: float = 30) -> Engine:
    return runner_engine(make_url(url), "runner", deadline=timedelta(seconds=deadline))


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not heard need not be waited for."""
    monkeypatch.setattr(ear_module, "PATIENCE_WITH_A_SERVER", 0.2)


def _listens(listen_url: URL | str, database_url: URL | str) -> tuple[bool, bool]:
    """Whether it hears, and whether a pooler is in between."""
    ear = Ear(_engine(listen_url), _engine(database_url))
    try:
        return ear.listen(), ear.pooled
    finally:
        ear.close()


def test_another_database_is_no_pooler(database_url: str, server: PostgresServer) -> None:
    """An address that leads elsewhere for a while, as in a failover, may be right again later."""
    assert _listens(server.url(), database_url) == (False, False)


@pytest.mark.needs("pgbouncer")
def test_a_pooler_is_told_apart(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing will ever be heard through it."""
    monkeypatch.setattr(ear_module, "PATIENCE", 0.2)
    with pgbouncer(database_url) as bouncer:
        assert _listens(bouncer.url, database_url) == (False, True)
        assert _listens(bouncer.url, bouncer.url) == (False, True)


@pytest.mark.needs("pgbouncer")
def test_a_pooler_of_whole_sessions_lets_it_hear(database_url: str) -> None:
    """There a client keeps its session, and LISTEN works as on a direct address."""
    with pgbouncer(database_url, pool_mode="session") as bouncer:
        assert _listens(bouncer.url, bouncer.url) == (True, True)


def test_a_connection_that_went_silent_is_lost(database_url: str, proxy: Proxy) -> None:
    """That nothing is heard on it says nothing about the way there: a failure, after which another one is made."""
    notifier = _engine(database_url)
    ear = Ear(_engine(proxy.url, deadline=0.5), notifier)
    with ExitStack() as stack:

        @event.listens_for(notifier, "before_cursor_execute")
        def mute(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "pg_notify" in statement:
                stack.enter_context(proxy.mute())

        with pytest.raises(OperationalError, match="has not answered"):
            ear.listen()
    event.remove(notifier, "before_cursor_execute", mute)
    assert ear.listen()
    ear.close()
