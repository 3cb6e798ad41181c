"""Whatever a handler raises or returns, in whichever executor: its row says so, and its neighbours never notice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed
from sa_jobqueue.runner import QueueSettings
from tests.support.runners import add, drain, row

NOW = fixed(timedelta(0))
NEIGHBOURS = 20


def _run(
    engine: Engine,
    url: str,
    where: str,
    act: Callable[[], Any],
    *,
    max_attempts: int,
    keep_result: bool = False,
) -> Any:
    """The row after everything that was due has run, ordinary jobs in between."""
    jobs = Registry()

    @jobs.handler("work", retry=NOW, keep_result=keep_result)
    async def work() -> Any:
        await asyncio.sleep(0)
        return act()

    jobs.handler("plain", retry=NOW, keep_result=keep_result)(lambda: act())

    @jobs.handler("neighbour")
    async def neighbour() -> None:
        await asyncio.sleep(0)

    with engine.begin() as connection:
        others = [add(connection, "neighbour") for _ in range(NEIGHBOURS // 2)]
        job = add(connection, "work" if where == "asyncio" else "plain", max_attempts=max_attempts)
        others += [add(connection, "neighbour") for _ in range(NEIGHBOURS // 2)]
    drain(jobs, url, queues={"default": QueueSettings(4, executor=where)})  # type: ignore[arg-type]
    assert {(row(engine, other).status, row(engine, other).attempts) for other in others} == {("done", 1)}
    return row(engine, job)


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class _TwoArgumentsError(Exception):
    def __init__(self, code: int, other: str) -> None:
        super().__init__(f"{code}: {other}")


def _holding_a_lock() -> Exception:
    error = ValueError("holds a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    return error


def _chain() -> Exception:
    error = ValueError("the first")
    for number in range(200):
        try:
            raise ValueError(f"number {number}") from error
        except ValueError as next_one:
            error = next_one
    return error


class _BareError(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\0b"),
        ValueError("\udcff"),
        ValueError("é" * 5_000_000),
        _UnprintableError(),
        ExceptionGroup("many", [ValueError(str(number)) for number in range(1000)]),
        _chain(),
        KeyboardInterrupt(),
        SystemExit(3),
        _BareError("bare"),
        _TwoArgumentsError(3, "other"),
        _holding_a_lock(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_is_recorded(
    engine: Engine, database_url: str, where: str, error: BaseException
) -> None:
    """The attempt counts, the text is storable, bounded and names the type, and the runner lives on."""

    def fail() -> None:
        raise error

    dead = _run(engine, database_url, where, fail, max_attempts=2)
    assert (dead.status, dead.attempts) == ("dead", 2)
    assert type(error).__qualname__ in dead.last_error
    if isinstance(error, _TwoArgumentsError):
        assert "_TwoArgumentsError: 3: other" in dead.last_error
    assert len(dead.last_error.encode()) <= 4096


UNKEEPABLE = pytest.mark.parametrize(
    "make",
    [
        object,
        lambda: (n for n in range(3)),
        lambda: lambda: None,
        lambda: float("nan"),
        lambda: b"x" * 50_000_000,
    ],
    ids=["object", "generator", "lambda", "nan", "50 MB"],
)


@UNKEEPABLE
def test_whatever_a_handler_returns_it_is_done(
    engine: Engine, database_url: str, where: str, make: Callable[[], Any]
) -> None:
    """Results are not kept, so none of them has to be stored or sent anywhere."""
    done = _run(engine, database_url, where, make, max_attempts=1)
    assert (done.status, done.attempts, done.result) == ("done", 1, None)


@UNKEEPABLE
def test_a_result_that_can_not_be_kept_is_a_failure(
    engine: Engine, database_url: str, where: str, make: Callable[[], Any]
) -> None:
    """Where it is to be stored: the attempt has failed, with what is wrong, and is never stuck."""
    dead = _run(engine, database_url, where, make, max_attempts=1, keep_result=True)
    assert (dead.status, dead.attempts, dead.result) == ("dead", 1, None)
    assert "can't be kept (keep_result=True): $: " in dead.last_error
    assert len(dead.last_error) < 1000


def test_a_row_stays_small_after_many_failures(engine: Engine, database_url: str, where: str) -> None:
    """Many failures with huge texts leave a row below 64 KiB."""

    def fail() -> None:
        raise ValueError("é" * 100_000)

    dead = _run(engine, database_url, where, fail, max_attempts=40)
    assert (dead.status, dead.attempts, len(dead.errors)) == ("dead", 40, 10)
    with engine.connect() as connection:
        size = text("SELECT length(j::text) FROM jobqueue_jobs j WHERE id = :id")
        assert connection.execute(size, {"id": dead.id}).scalar_one() < 64 * 1024
