"""Races by two real connections: somebody who waits for a lock, and the proof that he does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, text

from tests.support.waiting import wait_until

WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def wait_for_a_lock(engine: Engine) -> None:
    """Return when somebody in this database waits for a lock."""
    # Within one transaction pg_stat_activity is a snapshot of its first read.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
        wait_until(lambda: watcher.execute(WAITING).scalar_one(), what="somebody waits for a lock")


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """The call in a thread of its own, and the list that its answer goes to."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), name=getattr(call, "__name__", "call"))
    thread.start()
    return thread, answers
