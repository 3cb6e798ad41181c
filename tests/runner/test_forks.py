"""Handlers that fork, whose child is no second runner; and runners in processes that were forked."""

from __future__ import annotations

import os
import sys
from collections import defaultdict

import pytest
from sqlalchemy import Engine, create_engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.registry import Registry
from tests.support import forked
from tests.support.runners import LEDGER, ROOT, add, drain, ledger, row
from tests.support.waiting import PATIENCE

#: From Python 3.12 on a fork beside other threads warns, and a runner has some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def test_the_child_of_a_fork_ends_and_the_parent_settles(engine: Engine, database_url: str) -> None:
    """A forked child that returns, or calls sys.exit, must not hang with its parent's connections."""
    jobs = Registry()
    ended: list[int] = []

    @jobs.handler("fork")
    def fork(way: str) -> None:
        if (child := os.fork()) == 0:
            if way == "exits":
                sys.exit(3)
            return
        _, status = os.waitpid(child, 0)
        ended.append(os.waitstatus_to_exitcode(status))

    with engine.begin() as connection:
        forked = [add(connection, "fork", f'{{"way": "{way}"}}') for way in ("returns", "exits")]
    drain(jobs, database_url, queues={"default": 1})
    assert [row(engine, job).status for job in forked] == ["done", "done"]
    assert ended == [0, 1]


def test_a_child_and_its_parent_go_on_with_the_same_engine(engine: Engine, database_url: str) -> None:
    """The child leaves the connections that it has inherited alone, and the parent's block still completes the job."""
    jobs, used = Registry(), create_engine(database_url, pool_size=1)

    @jobs.handler("fork")
    def fork(ctx: JobContext) -> None:
        def note() -> None:
            with used.begin() as connection:
                values = {"pid": os.getpid()}
                connection.execute(
                    text("INSERT INTO ledger (pid, note) VALUES (:pid, pg_backend_pid()::text)"), values
                )

        note()
        if (child := os.fork()) == 0:
            used.dispose(close=False)  # what it has inherited is its parent's
            note()
            os._exit(0)
        note()
        assert os.waitpid(child, 0)[1] == 0
        note()
        with ctx.complete():
            pass

    with engine.begin() as connection:
        connection.execute(text(LEDGER))
        ids = [add(connection, "fork") for _ in range(5)]
    drain(jobs, database_url, queues={"default": 1})
    used.dispose()
    assert {row(engine, job_id).status for job_id in ids} == {"done"}
    assert len(ledger(engine)) == 4 * len(ids)
    assert_nobody_shares(engine)


@pytest.mark.parametrize("way", ["block", "session"])
def test_a_child_can_not_complete_the_job(engine: Engine, database_url: str, way: str) -> None:
    """It would write to its parent's connections: it is told so before anything is sent, and the parent goes on."""
    jobs, codes = Registry(), list[int]()

    @jobs.handler("fork")
    def fork(ctx: JobContext) -> None:
        with ctx.complete() as session:  # so that there is a connection to inherit
            session.execute(text("SELECT 1"))
            if (child := os.fork()) == 0:
                try:
                    if way == "block":
                        ctx.complete()
                    else:
                        ctx.complete_in(session)
                except RuntimeError as error:
                    os._exit(3 if "can't complete it: let the child end" in str(error) else 4)
                os._exit(5)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with engine.begin() as connection:
        job_id = add(connection, "fork")
    drain(jobs, database_url)
    assert (codes, row(engine, job_id).status) == ([3], "done")


@pytest.mark.once
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_runners_begin_after_their_parent_has_used_the_engine(
    engine: Engine, database_url: str, method: str
) -> None:
    """By whichever way: all jobs are done, once, and no two processes ever talk to one session of the server."""
    with engine.begin() as connection:
        connection.execute(text(LEDGER))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "SA_JOBQUEUE_DATABASE_URL": database_url,
    }
    done = forked.run(["tests.apps.prefork", method], cwd=ROOT, env=environment, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("[0, 0, 0, 0]\n", "")
    with engine.connect() as connection:
        jobs = connection.execute(
            text("SELECT kind, status, attempts, count(*) FROM jobqueue_jobs GROUP BY 1, 2, 3")
        )
        assert sorted(map(tuple, jobs)) == [("first", "done", 1, 100), ("second", "done", 1, 100)]
    assert len([one for one in ledger(engine) if one.job_id is not None]) == 200
    assert_nobody_shares(engine)


def assert_nobody_shares(engine: Engine) -> None:
    """Each session of the server was that of one process."""
    processes = defaultdict[str, set[int]](set)
    for one in ledger(engine):
        processes[one.note].add(one.pid)
    assert {len(pids) for pids in processes.values()} == {1}
