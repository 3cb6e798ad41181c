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
from sa_jobqueue.runner.executors.protocol import Execution
from sa_jobqueue.statements.settle import retry
from sa_jobqueue.states import JobStatus, Verb
from tests.support.effects import AT_ONCE, DONE, LONG, WRITE, Completing, commits, effects, one_job, told
from tests.support.proxy import Fate, Proxy, sends
from tests.support.runners import row, running
from tests.support.waiting import PATIENCE, wait_until

RETRIED = (Verb.RETRY, JobStatus.READY)
RETRY = sends(retry())


def _fences(text: str) -> bool:
    return "pg_current_xact_id" in text


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_answer(engine: Engine, proxy: Proxy, where: str, fate: Fate, swallow: bool) -> None:
    """Landed or not, and whether the handler lets the error out or hides it: one completion, its effects once."""
    job = one_job(engine)
    lost = proxy.on(commits, fate)
    work = Completing(where, swallow=swallow)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        wait_until(lambda: DONE in told(recorder))
    landed = fate is Fate.LOSE_ANSWER
    assert lost.struck == 1
    assert len(work.errors) == 1
    assert told(recorder) == ([DONE] if landed else [RETRIED, DONE])
    assert work.runs == {job: 1 if landed else 2}
    assert effects(engine) == {job: 1}
    assert row(engine, job).status == "done"
    assert len(recorder.of(CompletionInDoubt)) == 1
    for never in (OutcomeDropped, LeaseLost):
        assert not recorder.of(never)


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_ANSWER])
def test_a_lost_answer_of_the_fence(engine: Engine, proxy: Proxy, where: str, fate: Fate) -> None:
    """Nothing of it can land without a COMMIT, but only the retry that lands can say so."""
    job = one_job(engine)
    lost = proxy.on(_fences, fate)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        wait_until(lambda: DONE in told(recorder))
    assert lost.struck == 1
    assert told(recorder) == [RETRIED, DONE]
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}


def test_a_commit_that_lands_late(engine: Engine, proxy: Proxy, where: str) -> None:
    """Its transaction holds the row until then: the retry waits, and then finds the job done."""
    job = one_job(engine)
    late = proxy.on(commits, Fate.LAND_LATE)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        late.wait()
        recorder.wait_for(SettleDelayed, count=2)
        assert row(engine, job).status == "running"
        late.release()
        recorder.wait_for(JobSettled)
    assert {(it.verb, it.cause) for it in recorder.of(SettleDelayed)} == {(Verb.RETRY, "busy")}
    assert told(recorder) == [DONE]
    assert work.runs == effects(engine) == {job: 1}


def test_a_fence_that_lands_late(engine: Engine, proxy: Proxy, where: str) -> None:
    """The retry was first: the fence finds another's job, or none to be done, and its transaction is nobody's."""
    job = one_job(engine)
    late = proxy.on(_fences, Fate.LAND_LATE)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        late.wait()
        wait_until(lambda: DONE in told(recorder))
        late.release()
    assert told(recorder) == [RETRIED, DONE]
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}


def test_a_commit_that_does_not_come_for_a_lease(engine: Engine, proxy: Proxy, where: str) -> None:
    """The server ends the transaction, which holds the row: the job is free again, and nobody took it for lost before."""
    job = one_job(engine)
    held = proxy.on(commits, Fate.HOLD)
    work = Completing(where)
    short = {"lease": timedelta(seconds=1), "rescue_interval": timedelta(milliseconds=50)}
    with running(work.jobs, proxy.url, **short) as recorder:
        held.wait()
        wait_until(lambda: DONE in told(recorder))
    assert work.runs == {job: 2}
    assert effects(engine) == {job: 1}
    assert not recorder.of(LeaseLost)


def test_a_job_that_was_pruned_after_its_commit(engine: Engine, proxy: Proxy, where: str) -> None:
    """Where no row tells any more its transaction does: told as done, not as gone."""
    job = one_job(engine)
    proxy.on(commits, Fate.LOSE_ANSWER)
    held = proxy.on(RETRY, Fate.HOLD)
    work = Completing(where)
    with running(work.jobs, proxy.url, **LONG) as recorder:
        held.wait()
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM jobqueue_jobs"))
        held.release()
        recorder.wait_for(JobSettled)
    assert told(recorder) == [DONE]
    assert effects(engine) == {job: 1}
    assert not recorder.of(OutcomeDropped)


@pytest.mark.parametrize("lands", [True, False])
def test_a_transaction_that_somebody_else_ends(engine: Engine, database_url: str, lands: bool) -> None:
    """The handler joins a connection that is not its own to end: what its owner does later decides."""
    job = one_job(engine)
    jobs, runs = Registry(), list[int]()
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
            (outer.commit if lands else outer.rollback)()
            wait_until(lambda: DONE in told(recorder))
    finally:
        outer.close()
        outer.engine.dispose()
    assert told(recorder) == ([DONE] if lands else [RETRIED, DONE])
    assert len(runs) == (1 if lands else 2)
    assert effects(engine) == {job: 1}
    assert not recorder.of(OutcomeDropped)


def test_a_stop_while_a_completion_is_in_doubt(engine: Engine, proxy: Proxy, where: str) -> None:
    """The end waits for the answer as for any outcome, so that it is told."""
    job = one_job(engine)
    proxy.on(commits, Fate.LOSE_ANSWER)
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
    assert told(recorder) == [DONE]
    assert work.runs == effects(engine) == {job: 1}


def test_a_block_that_outlives_its_handler(
    engine: Engine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread passes the fence in the last moment before the handler's outcome counts: told as what it was."""
    job = one_job(engine)
    held = proxy.on(commits, Fate.HOLD)
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

    def decide(book: Book, execution: Execution) -> bool:
        go_on.set()
        held.wait()
        return real_decide(book, execution)

    real_decide = Book.decide
    monkeypatch.setattr(Book, "decide", decide)
    with running(jobs, proxy.url, **LONG) as recorder:
        recorder.wait_for(SettleDelayed)
        held.release()
        recorder.wait_for(JobSettled)
        threads[0].join(PATIENCE)
    assert told(recorder) == [DONE]
    assert not recorder.of(OutcomeDropped)
    assert effects(engine) == {job: 1}
