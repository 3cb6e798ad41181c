"""wait_for(): whoever needs the answer gets it, and holds nothing while it waits."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, func
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import FinishedJob, JobStatus, Registry, WaitTimeoutError, enqueue, wait_for
from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.models import jobs as table
from sa_jobqueue.records import Settlement
from sa_jobqueue.states import Verb
from sa_jobqueue.store.store import Store
from sa_jobqueue.testing import drain
from sa_jobqueue.waiting import pauses
from tests.support.jobs import add_job, add_running, change, read_job
from tests.support.runners import running
from tests.support.waiting import PATIENCE, wait_until

LONG = timedelta(seconds=PATIENCE)
NOT_AT_ALL = timedelta(0)
KINDS = ["engine", "sessionmaker", "psycopg2", "psycopg", "asyncpg", "async_sessionmaker"]


class Asking:
    """One way to ask, each on a pool of one connection that nobody may keep."""

    def __init__(self, url: Any, kind: str) -> None:
        self._kind = kind
        url = url.set(drivername=f"postgresql+{kind}") if kind in ("asyncpg", "psycopg2") else url
        self._url = url
        self._pool: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": PATIENCE}
        self.statements = list[str]()

    def __call__(self, job_id: int, timeout: timedelta) -> FinishedJob:
        if self._kind in ("engine", "sessionmaker", "psycopg2"):
            engine = create_engine(self._url, **self._pool)
            self._count(engine)
            database: Any = sessionmaker(engine) if self._kind == "sessionmaker" else engine
            try:
                return wait_for(database, job_id, timeout=timeout)
            finally:
                assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
                engine.dispose()
        return asyncio.run(self._ask(job_id, timeout))

    async def _ask(self, job_id: int, timeout: timedelta) -> FinishedJob:
        engine = create_async_engine(self._url, **self._pool)
        self._count(engine.sync_engine)
        database: Any = async_sessionmaker(engine) if self._kind == "async_sessionmaker" else engine
        try:
            return await wait_for(database, job_id, timeout=timeout)
        finally:
            assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            await engine.dispose()

    def _count(self, engine: Engine) -> None:
        @event.listens_for(engine, "before_cursor_execute")
        def count(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            self.statements.append(statement)


@pytest.fixture(params=KINDS)
def ask(request: pytest.FixtureRequest, engine: Engine) -> Asking:
    """Every kind of database that may be given."""
    return Asking(engine.url, request.param)


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    """Somebody who settles jobs on a connection of their own."""
    store = Store(engine, name="runner-1")
    yield store
    store.close()


def _in_thread(act: Callable[[], FinishedJob]) -> tuple[threading.Thread, list[FinishedJob]]:
    answers = list[FinishedJob]()
    thread = threading.Thread(target=lambda: answers.append(act()))
    thread.start()
    return thread, answers


def test_it_waits_until_the_job_is_done(engine: Engine, store: Store, ask: Asking) -> None:
    """It asks again and again while the job runs, and returns what the settlement has written."""
    token = uuid4()
    job_id = add_running(engine, token, kind="report")
    thread, answers = _in_thread(lambda: ask(job_id, LONG))
    wait_until(lambda: len(ask.statements) >= 3)
    assert thread.is_alive()
    store.settle([Settlement(job_id, token, Verb.COMPLETE, result='{"pages": 12}')])
    thread.join(PATIENCE)
    (answer,) = answers
    assert (answer.id, answer.kind, answer.status, answer.done) == (job_id, "report", "done", True)
    assert answer.result == {"pages": 12}
    assert answer.finished_at == read_job(engine, job_id).finished_at
    assert "pages" not in repr(answer)
    # Nothing but the looks themselves, the driver's own set-up aside.
    looked = [statement for statement in ask.statements if "jobqueue_jobs" in statement]
    assert {statement.split()[0] for statement in looked} == {"SELECT"}
    assert len(looked) >= 3


@pytest.mark.parametrize(
    ("columns", "reason", "error"),
    [
        (
            {"status": "dead", "reason": "exhausted", "last_error": "ValueError: no"},
            "exhausted",
            "ValueError: no",
        ),
        ({"status": "cancelled", "reason": "expired"}, "expired", None),
    ],
)
def test_every_end_is_an_answer(
    engine: Engine, columns: dict[str, Any], reason: str, error: str | None
) -> None:
    """Dead and cancelled come with their reason; one look is enough for what has ended already."""
    job_id = add_job(engine, finished_at=func.now(), **columns)
    answer = wait_for(engine, job_id, timeout=NOT_AT_ALL)
    assert (answer.status, answer.done, answer.result) == (columns["status"], False, None)
    assert (answer.reason, answer.last_error) == (reason, error)


def test_a_job_that_goes_on_is_a_timeout(engine: Engine, ask: Asking) -> None:
    """The error is a TimeoutError and one of ours, and says how the job stood; the job is left as it is."""
    job_id = add_running(engine, uuid4())
    before = read_job(engine, job_id)
    with pytest.raises(WaitTimeoutError, match=rf"job {job_id} is running, 50ms are over") as caught:
        ask(job_id, timedelta(milliseconds=50))
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, JobQueueError)
    assert (caught.value.job_id, caught.value.status) == (job_id, JobStatus.RUNNING)
    assert read_job(engine, job_id) == before


@pytest.mark.parametrize("job_id", [10**9, 2**70, -(2**70)])
def test_no_such_job_is_told_at_once(ask: Asking, job_id: int) -> None:
    """Nobody waits for what isn't there, be it an id that no column holds."""
    with pytest.raises(LookupError, match=f"there is no job {job_id}: never enqueued"):
        ask(job_id, LONG)


def test_inside_its_own_transaction_nobody_waits(engine: Engine, ask: Asking) -> None:
    """The job is seen by nobody before the commit: the wait would never end, so it says so at once."""
    with Session(engine) as session, session.begin():
        job = enqueue("report", {})
        session.add(job)
        session.flush()
        with pytest.raises(
            LookupError, match=r"inside the transaction that enqueues it .*: leave that first"
        ):
            ask(job.id, LONG)


def test_a_job_that_was_pruned_meanwhile(engine: Engine) -> None:
    """It was seen and is gone: how it ended nobody can tell any more."""
    job_id, seen = add_job(engine), list[int]()
    other = create_engine(engine.url)

    @event.listens_for(other, "after_cursor_execute")
    def prune(*_: Any) -> None:
        seen.append(1)
        if len(seen) == 3:
            with engine.begin() as connection:
                connection.execute(table.delete())

    with pytest.raises(LookupError, match=f"job {job_id} was there and is gone: it has been pruned"):
        wait_for(other, job_id, timeout=LONG)
    other.dispose()


def test_each_look_sees_the_latest_commit(engine: Engine) -> None:
    """Whatever isolation the application's engine has by default, no snapshot is kept."""
    job_id = add_job(engine)
    strict = create_engine(engine.url, isolation_level="SERIALIZABLE", pool_size=1, max_overflow=0)
    statements = list[Any]()
    event.listen(strict, "before_cursor_execute", lambda *_: statements.append(1))
    thread, answers = _in_thread(lambda: wait_for(strict, job_id, timeout=LONG))
    wait_until(lambda: len(statements) >= 2)
    change(engine, job_id, status="done", finished_at=func.now())
    thread.join(PATIENCE)
    assert answers[0].done
    with strict.connect() as connection:  # and the pool's connection is as it was
        assert connection.get_isolation_level() == "SERIALIZABLE"
    strict.dispose()


def test_through_a_whole_runner(engine: Engine, database_url: str) -> None:
    """The web request: enqueue, commit, wait; the handler's return value is the answer."""
    jobs = Registry()

    @jobs.handler("count", keep_result=True)
    def count(document_id: int) -> dict[str, int]:
        return {"pages": document_id * 2}

    with running(jobs, database_url):
        with Session(engine) as session, session.begin():
            session.add(job := enqueue(count.call(document_id=6)))
        assert job.enqueued is not None
        assert wait_for(engine, job.enqueued.id, timeout=LONG).result == {"pages": 12}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_in_the_transaction_of_a_test(engine: Engine, is_async: bool) -> None:
    """Sessions on one connection: what drain() has run is an answer, what it has not would never become one."""
    jobs = Registry()
    jobs.handler("count", keep_result=True)(lambda: 12)
    joined: dict[str, Any] = {"join_transaction_mode": "create_savepoint"}

    def sync(connection: Connection) -> FinishedJob:
        make = sessionmaker(connection, **joined)
        with make() as session, session.begin():
            session.add(job := enqueue("count", {}))
        assert job.enqueued is not None
        with pytest.raises(
            RuntimeError, match=r"is ready, and the sessions .* one connection.*drain\(\) first"
        ):
            wait_for(make, job.enqueued.id, timeout=LONG)
        drain(connection, jobs)
        return wait_for(make, job.enqueued.id, timeout=LONG)

    async def in_a_loop() -> FinishedJob:
        async_engine = create_async_engine(engine.url)
        async with async_engine.connect() as connection:
            make = async_sessionmaker(connection, **joined)
            async with make() as session, session.begin():
                session.add(job := enqueue("count", {}))
            assert job.enqueued is not None
            with pytest.raises(RuntimeError, match="is ready, and the sessions"):
                await wait_for(make, job.enqueued.id, timeout=LONG)
            await drain(connection, jobs)
            answer = await wait_for(make, job.enqueued.id, timeout=LONG)
            await connection.rollback()
        await async_engine.dispose()
        return answer

    if is_async:
        answer = asyncio.run(in_a_loop())
    else:
        with engine.connect() as connection:
            answer = sync(connection)
            connection.rollback()
    assert (answer.status, answer.result) == ("done", 12)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Session, "got Session: one of these holds a transaction while we wait: pass what makes them"),
        (lambda engine: engine.connect(), "got Connection: one of these holds a transaction"),
        (lambda engine: scoped_session(sessionmaker(engine)), "got scoped_session"),
        (lambda engine: str(engine.url), r"got str: pass create_engine\(\.\.\.\) or your sessionmaker"),
    ],
)
def test_other_databases_are_refused(engine: Engine, make: Callable[[Engine], Any], says: str) -> None:
    """What holds a transaction would be held for the whole wait."""
    given = make(engine)
    with pytest.raises(TypeError, match=rf"wait_for\(\): expected an Engine.*{says}"):
        wait_for(given, 1, timeout=LONG)
    if hasattr(given, "close"):
        given.close()


def test_odd_arguments_are_refused(engine: Engine) -> None:
    """Before anything is sent."""
    with pytest.raises(TypeError, match=r"expected ids of jobs \(int\), got str"):
        wait_for(engine, "7", timeout=LONG)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"timeout=\.\.\.\): expected a datetime\.timedelta, got 5"):
        wait_for(engine, 7, timeout=5)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="can't be negative"):
        wait_for(engine, 7, timeout=timedelta(seconds=-1))


def test_pauses_double_up_to_a_second_and_are_spread() -> None:
    """The first look after some 10 ms, and about one a second for a long wait."""
    some, other = (list(itertools.islice(pauses(), 20)) for _ in range(2))
    for given in (some, other):
        assert all(0.5 * min(0.01 * 2**n, 1) <= pause <= min(0.01 * 2**n, 1) for n, pause in enumerate(given))
    assert some != other


def test_a_cancelled_wait_gives_its_connection_back(engine: Engine) -> None:
    """A request that is broken off leaves nothing behind."""
    job_id = add_running(engine, UUID(int=1))

    async def broken_off() -> None:
        async_engine = create_async_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=PATIENCE)
        looks, looked = list[int](), asyncio.Event()

        @event.listens_for(async_engine.sync_engine, "before_cursor_execute")
        def count(*_: Any) -> None:
            looks.append(1)
            if len(looks) == 3:
                looked.set()

        task = asyncio.ensure_future(wait_for(async_engine, job_id, timeout=LONG))
        await looked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(WaitTimeoutError):
            await wait_for(async_engine, job_id, timeout=NOT_AT_ALL)
        await async_engine.dispose()

    asyncio.run(broken_off())
