"""What a handler writes in its block and the end of its job: both or neither."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import Enqueued, EnqueueError, JobStatus, Period, enqueue, enqueue_many
from sa_jobqueue.completion.owner import Fate
from sa_jobqueue.errors import ConfigurationError, LeaseLostError
from sa_jobqueue.models import jobs
from sa_jobqueue.records import KeyScope
from tests.completion.conftest import Claim
from tests.entry.application import Base, Document
from tests.support.completions import Run, is_untouched, take_over, titles
from tests.support.jobs import keyed, read_job


class HandlerError(Exception):
    """What a handler may raise."""


def follow_ups(engine: Engine, job_id: int) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(jobs.c.kind).where(jobs.c.id != job_id)))


def test_all_of_it_is_one_commit(engine: Engine, claim: Claim) -> None:
    """The handler's rows, the follow-up job, the result and the end of the job land together."""
    run = claim(**keyed("k"))
    with run.context.complete(result={"pages": 3}) as session:
        document = Document(title="written")
        session.add(document)
        session.add(enqueue("follow-up", {"of": run.job.id}))
        document.job = enqueue("pointed at")
        session.flush()
        assert titles(engine) == []
        assert read_job(engine, run.job.id).status == "running"
    row = read_job(engine, run.job.id)
    assert (row.status, row.result, row.settled_token) == ("done", {"pages": 3}, run.job.token)
    assert (row.lease_token, row.lease_until, row.leased_by, row.unique_key) == (None, None, None, None)
    assert row.finished_at is not None
    assert titles(engine) == ["written"]
    assert sorted(follow_ups(engine, run.job.id)) == ["follow-up", "pointed at"]
    assert run.holder.told == ["begin", "fencing", "decided: landed"]
    assert (run.completion.fate, run.completion.error) == (Fate.LANDED, None)
    assert run.completion.xid is not None


@pytest.mark.parametrize("scope", ["row", "unfinished"])
@pytest.mark.parametrize("form", ["add", "bulk"])
def test_its_own_key_is_not_free_yet(engine: Engine, claim: Claim, form: str, scope: KeyScope) -> None:
    """Whoever wants the next job of a key would be told of the one that ends with this commit, and never get his."""
    run = claim(**keyed("k"))
    with run.context.complete() as session:
        following = enqueue("next", idempotency_key="k", key_scope=scope)
        if form == "add":
            session.add_all([enqueue("other"), following])
        with pytest.raises(EnqueueError, match="'k' belongs to the job that this transaction completes"):
            session.flush() if form == "add" else enqueue_many(session, [enqueue("other"), following])
        if form == "add":
            session.expunge(following)
        session.add(enqueue("next", idempotency_key="another", key_scope="unfinished"))
    assert sorted(follow_ups(engine, run.job.id)) == (["next", "other"] if form == "add" else ["next"])
    with Session(engine) as session:
        session.add(following := enqueue("next", idempotency_key="k", key_scope="unfinished"))
        session.commit()
        assert following.enqueued
        assert following.enqueued.created


@pytest.mark.parametrize("scope", ["row", "unfinished"])
def test_its_own_key_stays_taken(engine: Engine, claim: Claim, scope: KeyScope) -> None:
    """As long as its row is kept: then whoever asks is told the truth."""
    run = claim(**keyed("k", scope="row"))
    with run.context.complete() as session:
        session.add(following := enqueue("next", idempotency_key="k", key_scope=scope))
        session.add(tomorrow := enqueue("next", idempotency_key="k", key_scope=Period(timedelta(days=1))))
    assert following.enqueued == Enqueued(run.job.id, "existing", JobStatus.RUNNING)
    assert tomorrow.enqueued
    assert tomorrow.enqueued.created
    assert read_job(engine, run.job.id).unique_key == "k"


def test_an_error_takes_all_of_it_back(engine: Engine, run: Run) -> None:
    """The error comes out as it is; rows and follow-up are gone; the job is still ours, as it was claimed."""
    error = HandlerError("no")

    def body(session: Session) -> None:
        session.add_all([Document(title="no"), enqueue("follow-up")])
        session.flush()
        raise error

    with pytest.raises(HandlerError) as raised, run.context.complete() as session:
        body(session)
    assert raised.value is error
    assert (titles(engine), follow_ups(engine, run.job.id)) == ([], [])
    row = read_job(engine, run.job.id)
    assert (row.status, row.lease_token, row.settled_token) == ("running", run.job.token, None)
    assert (run.completion.fate, run.completion.error) == (Fate.UNDONE, error)
    assert run.holder.told == ["begin", "decided: undone"]


def test_a_block_may_write_nothing_but_the_end(engine: Engine, run: Run) -> None:
    """A session that was never used completes the job all the same."""
    with run.context.complete():
        pass
    assert read_job(engine, run.job.id).status == "done"
    assert run.completion.fate is Fate.LANDED


def test_a_lost_job_fails_on_the_way_in(engine: Engine, run: Run) -> None:
    """The body doesn't run, and nobody is told of a fate."""
    token = take_over(engine, run.job.id)
    with pytest.raises(LeaseLostError), run.context.complete():
        pytest.fail("the body ran")
    assert is_untouched(engine, run.job.id, token)
    assert run.holder.told == ["begin"]


def test_a_second_completion_is_refused(engine: Engine, run: Run) -> None:
    """After the first, and within it."""
    with run.context.complete() as session:
        session.add(Document(title="once"))
        with pytest.raises(RuntimeError, match="a second completion"), run.context.complete():
            pytest.fail("the body ran")
        with pytest.raises(RuntimeError, match=f"is completing job {run.job.id} already"):
            run.context.complete_in(session)
    with pytest.raises(RuntimeError, match="a second completion"), run.context.complete():
        pytest.fail("the body ran")
    assert titles(engine) == ["once"]


def test_a_block_is_entered_once(run: Run) -> None:
    """It stands for one completion."""
    block = run.context.complete()
    with block:
        pass
    with pytest.raises(RuntimeError, match="entered once"), block:
        pytest.fail("the body ran")


FACTORIES: dict[str, Callable[[Engine], Any]] = {
    "sessionmaker": sessionmaker,
    "without autobegin": lambda engine: sessionmaker(engine, autobegin=False),
    "function": lambda engine: lambda: Session(engine, expire_on_commit=False),
    "scoped_session": lambda engine: scoped_session(sessionmaker(engine)),
    "binds": lambda engine: sessionmaker(binds={Base: engine, jobs: engine}),
}


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_session_comes_from_the_handlers_own_factory(engine: Engine, run: Run, factory: str) -> None:
    """And is closed at the end, so that nothing of it stays open."""
    with run.context.complete(FACTORIES[factory](engine)) as session:
        session.add(Document(title="mine"))
    assert not session.in_transaction()
    assert titles(engine) == ["mine"]
    assert read_job(engine, run.job.id).status == "done"
    assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]  # the holder's own


def test_a_session_in_use_is_refused(engine: Engine, run: Run) -> None:
    """A scoped session may have one: what it holds is not the block's."""
    sessions = scoped_session(sessionmaker(engine))
    sessions.execute(select(1))
    with pytest.raises(RuntimeError, match=r"in a transaction already: .*complete_in\(session\)"):
        run.context.complete(sessions).__enter__()
    sessions.remove()
    assert run.holder.told == []


def test_a_session_for_another_database_is_told(engine: Engine, run: Run, empty_database_url: str) -> None:
    """Neither a database without the tables nor a session without an engine for jobs completes anything."""
    elsewhere = create_engine(empty_database_url)
    with (
        pytest.raises(ConfigurationError, match=r"database without the queue's tables"),
        run.context.complete(sessionmaker(elsewhere)) as session,
    ):
        session.execute(select(1))
    elsewhere.dispose()
    assert run.completion.fate is Fate.UNDONE
    run.holder.completion = None
    with pytest.raises(ConfigurationError, match="add Job to its binds"):
        run.context.complete(sessionmaker(binds={Base: engine})).__enter__()
    assert read_job(engine, run.job.id).status == "running"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("engine", "expected a sessionmaker.* got Engine$"),
        ("session", r"got Session; for a session of your own call complete_in\(session\)"),
        (7, "got int$"),
    ],
)
def test_what_makes_no_sessions_is_refused(engine: Engine, run: Run, given: Any, message: str) -> None:
    """At the call, with what would do."""
    given = {"engine": engine, "session": Session(engine)}.get(given, given)
    with pytest.raises(TypeError, match=message):
        run.context.complete(given)
    with pytest.raises(TypeError, match="made Engine: `with` is for Session"):
        run.context.complete(lambda: engine).__enter__()  # type: ignore[arg-type, return-value]
    with (
        engine.connect() as connection,
        pytest.raises(TypeError, match=r"complete_in\(\): .* got Connection"),
    ):
        run.context.complete_in(connection)  # type: ignore[call-overload]
    assert run.holder.told == []


def test_a_result_is_checked_at_the_call(engine: Engine, run: Run) -> None:
    """By the rules of payloads, before anything is sent; a large one is told in its place, for the work is done."""
    with pytest.raises(TypeError, match=r"\$\.at: datetime\.datetime is no JSON type"):
        run.context.complete(result={"at": datetime.now(UTC)})
    with pytest.raises(ValueError, match=r"\$\[0\]: .*NUL"):
        run.context.complete(result=["\0"])
    assert run.holder.told == []
    with run.context.complete(result="é" * 40_000):
        pass
    row = read_job(engine, run.job.id)
    assert (row.status, row.result) == ("done", {"dropped": "result too large", "bytes": 80_002})


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda context: pickle.loads(pickle.dumps(context))]
)
def test_a_copy_completes_nothing(run: Run, copied: Callable[[Any], Any]) -> None:
    """A context that travels leaves its runner behind, and says so."""
    assert "_completer" not in repr(run.context)
    with pytest.raises(RuntimeError, match=rf"complete\(\): .* job {run.job.id} \(test\): it is a copy"):
        copied(run.context).complete()
    with pytest.raises(RuntimeError, match=r"complete_in\(\): no runner stands behind"):
        copied(run.context).complete_in(None)
    run.context.complete()  # the original's is as it was
