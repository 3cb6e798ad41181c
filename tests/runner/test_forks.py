"""Handlers that fork: the child is no second runner."""

from __future__ import annotations

import os
import sys

from sqlalchemy import Engine

from sa_jobqueue.registry import Registry
from tests.support.runners import add, drain, row


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
