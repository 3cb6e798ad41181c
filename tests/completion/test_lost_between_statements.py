"""Whenever somebody else takes the job: nothing of the block is written, or nobody can take it any more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
from tests.completion.conftest import Claim
from tests.completion.shapes import BODIES, WRITTEN, Body, before_each_step
from tests.support.completions import Run, attempt, is_untouched, let_expire, take_over, titles
from tests.support.jobs import read_job

#: What can become of the lease behind the handler's back.
MISHAPS: dict[str, Callable[[Engine, int], Any]] = {"taken over": take_over, "expired": let_expire}
BLOCKED = "blocked"


def attempt_with(
    engine: Engine, handlers: Engine, run: Run, body: Body, mishap: Callable[[Engine, int], Any], at: int
) -> tuple[BaseException | None, list[Any]]:
    """The same, with the mishap before step `at`, and what came of that: nothing when there is no such step."""
    happened: list[Any] = []

    def act(step: int, _: str) -> None:
        if step == at:
            try:
                happened.append(mishap(engine, run.job.id))
            except OperationalError:
                happened.append(BLOCKED)

    with before_each_step(handlers, act):
        return attempt(run, sessionmaker(handlers), body), happened


def clear(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("TRUNCATE documents, jobqueue_jobs CASCADE")


@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("shape", BODIES)
def test_a_job_that_is_lost_between_any_two_statements(
    engine: Engine, handlers: Engine, claim: Claim, shape: str, mishap: str
) -> None:
    """Up to the fence all is rolled back; from the fence on nobody gets at the row, and the commit lands."""
    fates: list[Fate] = []
    blocked = 0
    for at in itertools.count():
        run = claim()
        error, happened = attempt_with(engine, handlers, run, BODIES[shape], MISHAPS[mishap], at)
        fates.append(run.completion.fate)
        blocked += happened == [BLOCKED]
        row = read_job(engine, run.job.id)
        if run.completion.fate is Fate.LANDED:
            assert happened in ([], [None], [False], [BLOCKED]), at
            assert (error, row.status, row.settled_token) == (None, "done", run.job.token)
            assert titles(engine) == WRITTEN[shape]
        else:
            assert isinstance(error, LeaseLostError), at
            assert (run.completion.fate, run.completion.error) == (Fate.LOST, error)
            assert happened not in ([], [None], [False], [BLOCKED])
            assert is_untouched(engine, run.job.id, happened[0] if mishap == "taken over" else run.job.token)
        clear(engine)
        if not happened:
            break
    lost = fates.count(Fate.LOST)
    assert fates == [Fate.LOST] * lost + [Fate.LANDED] * (len(fates) - lost)
    assert lost >= 2
    assert blocked >= 1


@pytest.mark.parametrize("shape", BODIES)
def test_an_error_that_is_swallowed_lets_nothing_through(
    engine: Engine, handlers: Engine, run: Run, shape: str
) -> None:
    """However often the handler tries again, and by whatever way: the first error comes back, the record keeps it."""
    errors: list[BaseException] = []
    token: list[UUID | None] = []

    def stubborn(session: Session) -> None:
        token.append(take_over(engine, run.job.id))
        for again in (BODIES[shape], BODIES["plain"], BODIES["connection_commit"], BODIES[shape]):
            try:
                again(session)
                session.commit()
            except Exception as error:
                errors.append(error)
                if len(errors) % 2:
                    session.rollback()

    error = attempt(run, sessionmaker(handlers), stubborn)
    assert isinstance(error, LeaseLostError)
    assert run.completion.error is errors[0] is error
    assert run.completion.fate is Fate.LOST
    assert len(errors) == 4
    assert is_untouched(engine, run.job.id, token[0])
    assert run.holder.told.count("fencing") == 1


def test_an_owner_who_has_decided_lets_nothing_through(engine: Engine, handlers: Engine, run: Run) -> None:
    """The runner has settled the job in the handler's place: no fence is sent, and no commit passes."""
    run.holder.refusing = True
    error = attempt(run, sessionmaker(handlers), BODIES["plain"])
    assert isinstance(error, LeaseLostError)
    assert (run.completion.fate, run.completion.error) == (Fate.LOST, error)
    assert run.completion.xid is None
    assert titles(engine) == []


def test_a_job_that_is_gone_is_told_as_such(engine: Engine, handlers: Engine, run: Run) -> None:
    """Also for who has bound the session to another database with the same tables."""
    error = attempt(run, sessionmaker(handlers), lambda _: clear(engine))
    assert "no such job where the session leads" in str(error)
    assert run.completion.fate is Fate.LOST
