"""Passwords of database URLs turn up nowhere, least of all where somebody is not let in."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_jobqueue import loop
from sa_jobqueue.events import LoopFailed, LoopRecovered
from sa_jobqueue.logs import log_event
from sa_jobqueue.runner import Runner
from sa_jobqueue.testing.server import connect
from sa_jobqueue.waiting import wait_for
from tests.apps.secrets import jobs
from tests.support import forked
from tests.support.runners import ROOT, Recorder, settings
from tests.support.secrets import PASSWORD, assert_hidden, logged
from tests.support.waiting import PATIENCE, wait_until

LEVELS = pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG], ids=["INFO", "DEBUG"])


def _wrong(url: str, change: str) -> str:
    """The URL with another password, in its own place or as an option, or with an address where nobody listens."""
    parsed = make_url(url)
    match change:
        case "password":
            parsed = parsed.set(password=f"{PASSWORD}-not")
        case "option":
            parsed = parsed.set(password=None).update_query_dict({"password": f"{PASSWORD}-not"})
        case "address":
            parsed = parsed.set(port=1)
    return parsed.render_as_string(hide_password=False)


WRONG = pytest.mark.parametrize("change", ["password", "option", "address"])


@WRONG
@pytest.mark.parametrize("arguments", [("run", "tests.apps.secrets:jobs"), ("stats",), ("jobs", "show", "1")])
def test_commands_that_are_not_let_in(guarded_url: str, change: str, arguments: tuple[str, ...]) -> None:
    """One message with the address; not even the wrong password is in it, which may be nearly right."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": _wrong(guarded_url, change),
    }
    environment["SA_JOBQUEUE_LOG_LEVEL"] = "debug"
    done = forked.run(["sa_jobqueue", *arguments], cwd=ROOT, env=environment, timeout=PATIENCE)
    assert done.returncode == 3
    assert "can't reach the database at postgresql+psycopg://app" in done.stderr
    assert_hidden(done.stderr + done.stdout)


@WRONG
@LEVELS
def test_runners_that_are_not_let_in(guarded_url: str, change: str, level: int) -> None:
    """At the start the error comes out; neither its traceback nor any line says what was given."""
    with logged(level) as lines:
        given = Runner(jobs, _wrong(guarded_url, change), settings(), subscribers=[log_event])
        with pytest.raises(OperationalError) as caught:
            given.start()
    assert_hidden("".join(traceback.format_exception(caught.value)) + repr(caught.value) + lines.text)


@LEVELS
def test_a_password_that_was_changed_meanwhile(
    guarded_url: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops that lose their connections and are not let in again say so for as long as it lasts."""
    # The first thing that fails is a lost connection; that nobody is let in is what the reminders tell.
    monkeypatch.setattr(loop, "REMINDER", 0.0)
    other = make_url(guarded_url).set(username="other").render_as_string(hide_password=False)
    recorder = Recorder()
    given = Runner(jobs, other, settings(), subscribers=[recorder, log_event])
    with connect(guarded_url) as admin:
        admin.execute("DROP ROLE IF EXISTS other")
        admin.execute(f"CREATE ROLE other SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        with logged(level) as lines, given:
            admin.execute("ALTER ROLE other PASSWORD 'another'")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'other'")
            wait_until(
                lambda: any("password authentication" in one.error for one in recorder.of(LoopFailed)),
                what="a loop that is not let in",
            )
            admin.execute(f"ALTER ROLE other PASSWORD '{PASSWORD}'")
            recorder.wait_for(LoopRecovered)
    assert_hidden(lines.text + str(recorder.events))
    assert "password authentication failed" in lines.text


@WRONG
@pytest.mark.parametrize("driver", ["sync", "psycopg", "asyncpg"])
def test_waiters_that_are_not_let_in(guarded_url: str, change: str, driver: str) -> None:
    """What comes out of `wait_for` and of an enqueue is the driver's own error."""
    url = make_url(_wrong(guarded_url, change))

    async def ask() -> None:
        engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
        try:
            await wait_for(engine, 7, timeout=timedelta(seconds=1))
        finally:
            await engine.dispose()

    def wait() -> Any:
        if driver != "sync":
            return asyncio.run(ask())
        return wait_for(create_engine(url), 7, timeout=timedelta(seconds=1))

    with pytest.raises(
        Exception, match=r"password authentication failed|refused|Connect call failed"
    ) as caught:
        wait()
    assert_hidden("".join(traceback.format_exception(caught.value)) + repr(caught.value))
