"""Runners in processes that begin after their parent has used its engine: `python -m tests.apps.prefork fork|...`.

The parent goes on using it. Who had which session of the server stands in the ledger.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import ExitStack

from sqlalchemy import Connection, create_engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.database import normalise_url
from sa_jobqueue.entry.bulk import enqueue_many
from sa_jobqueue.entry.request import enqueue
from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import Runner, RunnerSettings

POOL_SIZE, PROCESSES = 5, 4

jobs = Registry()
engine = create_engine(normalise_url(os.environ["SA_JOBQUEUE_DATABASE_URL"]), pool_size=POOL_SIZE)
runner = Runner(jobs, engine, RunnerSettings(queues={"default": 4}, burst=True))


def note(connection: Connection, job_id: int | None) -> None:
    """This process and the server's that it talks to."""
    connection.execute(
        text("INSERT INTO ledger (job_id, pid, note) VALUES (:job_id, :pid, pg_backend_pid()::text)"),
        {"job_id": job_id, "pid": os.getpid()},
    )


@jobs.handler("first")
def first(ctx: JobContext) -> None:
    with engine.begin() as connection:
        note(connection, ctx.id)
        enqueue_many(connection, [enqueue(second.call())])


@jobs.handler("second")
def second(ctx: JobContext) -> None:
    with ctx.complete() as session:
        note(session.connection(), ctx.id)
    with engine.begin() as connection:
        note(connection, None)


def run() -> None:
    engine.dispose(close=False)  # what a fork has left in the pool is the parent's
    sys.exit(runner.run(handle_signals=False))


def main(method: str) -> None:
    assert runner.run(handle_signals=False) == 0  # so that it has been in use as well
    with ExitStack() as stack:
        for _ in range(POOL_SIZE):
            note(stack.enter_context(engine.begin()), None)
    with engine.begin() as connection:
        enqueue_many(connection, [enqueue(first.call()) for _ in range(100)])
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=run) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        with ExitStack() as stack:
            for _ in range(POOL_SIZE):
                note(stack.enter_context(engine.begin()), None)
        processes[0].join(0.05)
    print([process.exitcode for process in processes])


if __name__ == "__main__":
    main(sys.argv[1])
