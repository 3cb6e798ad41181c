"""One event for each row and verb that the database refuses, however often it does so."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sa_jobqueue.events import RowRefused

if TYPE_CHECKING:
    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.states import Verb

#: So many rows and verbs are remembered; beyond them the oldest are forgotten, and may be told again.
REMEMBERED = 10_000


class RefusalsTold:
    """Where the stores of one runner report refused rows, each from its own thread."""

    def __init__(self, runner_id: str, subscribers: Subscribers) -> None:
        self._runner_id = runner_id
        self._subscribers = subscribers
        self._lock = threading.Lock()
        self._told: dict[tuple[int, Verb], None] = {}

    def __call__(self, job_id: int, verb: Verb, fault: str) -> None:
        with self._lock:
            if (job_id, verb) in self._told:
                return
            if len(self._told) >= REMEMBERED:
                del self._told[next(iter(self._told))]
            self._told[job_id, verb] = None
        self._subscribers.emit(RowRefused(runner_id=self._runner_id, job_id=job_id, verb=verb, fault=fault))
