"""The answer to the COMMIT of a completion never arrives: told as what it was, run again only when it did not land."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue.context import JobContext
from sa_jobqueue.events import CompletionInDoubt, JobSettled, LeaseLost, OutcomeDropped, SettleDelayed
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner.book import Book
from sa_jobqueue.statements.settle import retry
from sa_jobqueue.states import JobStatus, Verb
from tests.support.effects import AT_ONCE, WRITE, Completing, create_effects, effects
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import Recorder, add, row, running
from tests.support.waiting import PATIENCE, wait_until

#: So long that no test here can end by a lease that is over.
LONG = {"lease": timedelta(minutes=5), "rescue_interval": timedelta(hours=1)}
DONE = (Verb.COMPLETE, JobStatus.DONE)
RETRIED = (Verb.RETRY, JobStatus.READY)
RETRY = sends(retry())


@pytest.fixture(params=["thread", "asyncio"])
def where(request: pytest.FixtureRequest) -> str:
    """The executor that the handlers run in; on asyncio they are async."""
    return str(request.param)


def _commits(text: str) -> bool:
    """Only handlers commit here: the runner's own statements need none."""
    return text.strip().upper() == "COMMIT"


def _fences(text: str) -> bool:
    return "pg_current_xact_id" in text


def _job(engine: Engine) -> int:
    with engine.begin() as connection:
        create_effects(connection)
        return add(connection, "work")


def _told(recorder: Recorder) -> list[tuple[Verb, JobStatus]]:
    return [(it.verb, it.status) for it in recorder.of(JobSettled)]


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_answer(engine: Engine, proxy: Proxy, where: str, fate: Fate, swallow: bool) -> None:
    """Landed or not, and whether the handler lets the error out or hides it: one completion, its effects once."""
    job = _job(engine)
    lost = proxy.on(_commits, fate)
    work = Completing(where, swallow=swallow)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        wait_until(lambda: DONE in _told(recorder))
    landed = fate is Fate.LOSE_ANSWER
    assert lost.struck == 1
    assert len(work.errors) == 1
    assert _told(recorder) == ([DONE] if landed else [RETRIED, DONE])
    assert work.runs == {job: 1 if landed else 2}
    assert effects(engine) == {job: 1}
    assert row(engine, job).status == "done"
    assert len(recorder.of(CompletionInDoubt)) == 1
    for never in (OutcomeDropped, LeaseLost):
        assert not recorder.of(never)


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_answer_of_the_fence(engine: Engine, proxy: Proxy, where: str, fate: Fate) -> None:
    """Nothing of it can land without a COMMIT, but only the retry that lands can say so."""
    job = _job(engine)
    lost = proxy.on(_fences, fate)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        wait_until(lambda: DONE in _told(recorder))
    assert lost.struck == 1
    assert _told(recorder) == [RETRIED, DONE]
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}


def test_a_commit_that_lands_late(engine: Engine, proxy: Proxy, where: str) -> None:
    """Its transaction holds the row until then: the retry waits, and then finds the job done."""
    job = _job(engine)
    late = proxy.on(_commits, Fate.LAND_LATE)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        late.wait()
        recorder.wait_for(SettleDelayed, count=2)
        assert row(engine, job).status == "running"
        late.release()
        recorder.wait_for(JobSettled)
    assert {(it.verb, it.cause) for it in recorder.of(SettleDelayed)} == {(Verb.RETRY, "busy")}
    assert _told(recorder) == [DONE]
    assert work.runs == effects(engine) == {job: 1}


def test_a_fence_that_lands_late(engine: Engine, proxy: Proxy, where: str) -> None:
    """The retry was first: the fence finds another's job, or none to be done, and its transaction is nobody's."""
    job = _job(engine)
    late = proxy.on(_fences, Fate.LAND_LATE)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        late.wait()
        wait_until(lambda: DONE in _told(recorder))
        late.release()
    assert _told(recorder) == [RETRIED, DONE]
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}


def test_a_commit_that_does_not_come_for_a_lease(engine: Engine, proxy: Proxy, where: str) -> None:
    """The server ends the transaction, which holds the row: the job is free again, and nobody took it for lost before."""
    job = _job(engine)
    held = proxy.on(_commits, Fate.HOLD)
    work = Completing(where)
    short = {"lease": timedelta(seconds=1), "rescue_interval": timedelta(milliseconds=50)}
    with running(work.jobs, proxy.url, **short) as recorder:
        held.wait()
        wait_until(lambda: DONE in _told(recorder))
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}
    assert not recorder.of(LeaseLost)


def test_a_job_that_was_pruned_after_its_commit(engine: Engine, proxy: Proxy, where: str) -> None:
    """Where no row tells any more its transaction does: told as done, not as gone."""
    job = _job(engine)
    proxy.on(_commits, Fate.LOSE_ANSWER)
    held = proxy.on(RETRY, Fate.HOLD)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        held.wait()
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM jobqueue_jobs"))
        held.release()
        recorder.wait_for(JobSettled)
    assert _told(recorder) == [DONE]
    assert effects(engine) == {job: 1}
    assert not recorder.of(OutcomeDropped)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_somebody_else_ends(engine: Engine, database_url: str, commits: bool) -> None:
    """The handler joins a connection that is not its own to end: what its owner does later decides."""
    job = _job(engine)
    jobs, runs, gate = Registry(), list[int](), threading.Event()
    outer = create_engine(database_url).connect()

    @jobs.handler("work", retry=AT_ONCE)
    def work(ctx: JobContext) -> None:
        runs.append(ctx.id)
        if len(runs) > 1:
            with ctx.complete() as session:
                session.execute(WRITE, {"job_id": ctx.id})
            return
        outer.begin()
        with Session(bind=outer) as session:
            ctx.complete_in(session)
            session.execute(WRITE, {"job_id": ctx.id})
            session.commit()

    try:
        with running(jobs, database_url, **LONG) as recorder:
            recorder.wait_for(SettleDelayed)
            assert row(engine, job).status == "running"
            (outer.commit if commits else outer.rollback)()
            wait_until(lambda: DONE in _told(recorder))
    finally:
        outer.close()
        outer.engine.dispose()
    gate.set()
    assert _told(recorder) == ([DONE] if commits else [RETRIED, DONE])
    assert len(runs) == (1 if commits else 2)
    assert effects(engine) == {job: 1}
    assert not recorder.of(OutcomeDropped)


def test_a_stop_while_a_completion_is_in_doubt(engine: Engine, proxy: Proxy, where: str) -> None:
    """The end waits for the answer as for any outcome, so that it is told."""
    job = _job(engine)
    proxy.on(_commits, Fate.LOSE_ANSWER)
    held = proxy.on(RETRY, Fate.HOLD)
    work = Completing(where)
    released: list[Any] = []

    def release() -> None:
        held.wait()
        released.append(held.release())

    thread = threading.Thread(target=release)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        held.wait()
        thread.start()
    thread.join(PATIENCE)
    assert released
    assert _told(recorder) == [DONE]
    assert work.runs == effects(engine) == {job: 1}


def test_a_block_that_outlives_its_handler(
    engine: Engine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread passes the fence in the last moment before the handler's outcome counts: told as what it was."""
    job = _job(engine)
    held = proxy.on(_commits, Fate.HOLD)
    jobs, inside, go_on = Registry(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @jobs.handler("work", retry=AT_ONCE)
    def work(ctx: JobContext) -> None:
        def block() -> None:
            with ctx.complete() as session:
                session.execute(WRITE, {"job_id": ctx.id})
                inside.set()
                go_on.wait(PATIENCE)

        threads.append(threading.Thread(target=block))
        threads[-1].start()
        assert inside.wait(PATIENCE)

    def decide(book: Book, key: Any) -> bool:
        go_on.set()
        held.wait()
        return real_decide(book, key)

    real_decide = Book.decide
    monkeypatch.setattr(Book, "decide", decide)
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(SettleDelayed)
        held.release()
        recorder.wait_for(JobSettled)
        threads[0].join(PATIENCE)
    assert _told(recorder) == [DONE]
    assert not recorder.of(OutcomeDropped)
    assert effects(engine) == {job: 1}
