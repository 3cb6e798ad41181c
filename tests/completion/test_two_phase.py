"""A two-phase session is fenced before PREPARE; from then on the server alone has it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import LeaseLostError
from tests.completion.conftest import Claim
from tests.completion.shapes import before_each_step, plain, root_committed_within_savepoint
from tests.support.completions import Run, attempt, is_untouched, take_over, titles
from tests.support.jobs import read_job


@pytest.fixture(params=[plain, root_committed_within_savepoint])
def body(request: pytest.FixtureRequest) -> Any:
    """Both nets."""
    return request.param


def test_it_lands_with_the_second_phase(engine: Engine, handlers: Engine, run: Run, body: Any) -> None:
    """Prepared the row is held; committed the job is done."""
    held: list[str] = []

    def prepared(_connection: Any, _xid: Any, _is_prepared: bool) -> None:
        assert titles(engine) == []
        with pytest.raises(OperationalError):
            take_over(engine, run.job.id)
        held.append(read_job(engine, run.job.id).status)

    event.listen(handlers, "commit_twophase", prepared)
    assert attempt(run, sessionmaker(handlers, twophase=True), body) is None
    assert held == ["running"]
    assert run.completion.fate is Fate.LANDED
    assert read_job(engine, run.job.id).status == "done"
    assert run.holder.told == ["begin", "fencing", "decided: landed"]


def test_prepared_by_the_handler(engine: Engine, handlers: Engine, run: Run) -> None:
    """`session.prepare()` is the first phase as well."""
    with run.context.complete(sessionmaker(handlers, twophase=True)) as session:
        plain(session)
        session.prepare()
        assert run.holder.told == ["begin", "fencing"]
    assert (run.completion.fate, titles(engine)) == (Fate.LANDED, ["plain"])


def test_lost_between_any_two_statements(engine: Engine, handlers: Engine, claim: Claim, body: Any) -> None:
    """Nothing is prepared of a job that is lost, whatever its handler swallows."""
    lost = 0
    for at in itertools.count():
        run = claim()
        happened: list[Any] = []

        def act(step: int, _: str, run: Run = run, at: int = at, happened: list[Any] = happened) -> None:
            if step == at:
                try:
                    happened.append(take_over(engine, run.job.id))
                except OperationalError:
                    happened.append("blocked")

        with before_each_step(handlers, act):
            error = attempt(run, sessionmaker(handlers, twophase=True), body)
        with engine.begin() as connection:
            assert connection.scalar(text("SELECT count(*) FROM pg_prepared_xacts")) == 0
        if run.completion.fate is Fate.LOST:
            assert isinstance(error, LeaseLostError)
            assert is_untouched(engine, run.job.id, happened[0])
            lost += 1
        else:
            assert (error, run.completion.fate) == (None, Fate.LANDED)
            assert read_job(engine, run.job.id).settled_token == run.job.token
        with engine.begin() as connection:
            connection.exec_driver_sql("TRUNCATE documents, jobqueue_jobs CASCADE")
        if not happened:
            break
    assert lost >= 2
    assert at > lost


def test_a_swallowed_error_prepares_nothing(engine: Engine, handlers: Engine, run: Run) -> None:
    """Nor is it committed in one phase, past the session."""
    errors: list[Exception] = []
    token: list[Any] = []

    def stubborn(session: Session) -> None:
        plain(session)
        transaction: Any = session.connection().get_transaction()
        token.append(take_over(engine, run.job.id))
        for step in (transaction.prepare, transaction.prepare, transaction.commit, session.commit):
            try:
                step()
            except Exception as error:
                errors.append(error)

    error = attempt(run, sessionmaker(handlers, twophase=True), stubborn)
    assert isinstance(errors[0], LeaseLostError)
    assert len(errors) == 4
    assert run.completion.error is errors[0] is error
    assert is_untouched(engine, run.job.id, token[0])


def test_after_prepare_a_failure_leaves_it_in_doubt(engine: Engine, handlers: Engine, run: Run) -> None:
    """The second phase can't be sent: the transaction is there until somebody resolves it, and has the row."""

    def end(connection: Any, _xid: Any, _is_prepared: bool) -> None:
        pid = connection.connection.dbapi_connection.info.backend_pid
        with engine.begin() as killer:
            killer.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})

    event.listen(handlers, "commit_twophase", end)
    error = attempt(run, sessionmaker(handlers, twophase=True), plain)
    assert isinstance(error, OperationalError)
    assert (run.completion.fate, run.completion.error) == (Fate.DOUBTFUL, error)
    assert titles(engine) == []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        (name,) = connection.scalars(text("SELECT gid FROM pg_prepared_xacts"))
        connection.exec_driver_sql(f"COMMIT PREPARED '{name}'")
    assert (titles(engine), read_job(engine, run.job.id).status) == (["plain"], "done")
