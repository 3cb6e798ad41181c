"""Another transaction that wants a key, at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sa_jobqueue import Enqueued, enqueue
from sa_jobqueue.records import OnConflict
from tests.entry.application import Document
from tests.entry.counting import backend, wait_until_blocked
from tests.support.waiting import PATIENCE


class Second:
    """A transaction in a thread of its own that enqueues the key and commits with a document."""

    def __init__(
        self, engine: Engine, pool: ThreadPoolExecutor, key: str = "x", on_conflict: OnConflict = "existing"
    ) -> None:
        self._engine = engine
        self._key = key
        self._on_conflict = on_conflict
        self._started = threading.Event()
        self._backend = 0
        self.outcome: Future[Enqueued | None] = pool.submit(self._run)
        assert self._started.wait(PATIENCE)

    def wait_until_blocked(self) -> None:
        wait_until_blocked(self._engine, self._backend)

    def _run(self) -> Enqueued | None:
        with Session(self._engine) as session:
            self._backend = backend(session)
            self._started.set()
            session.add(Document(title="second"))
            session.add(job := enqueue("second", idempotency_key=self._key, on_conflict=self._on_conflict))
            session.commit()
            return job.enqueued
