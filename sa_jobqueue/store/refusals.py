"""Rows that the database lets nobody write: told by id, verb and fault, and left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sa_jobqueue.store.trouble import fault_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sa_jobqueue.states import Verb

#: A row whose claim was refused is not asked for again, in seconds, while another claim goes around it.
PAUSE = 60.0

#: Is told the id of a row, the verb that was refused and why. Called in the thread of the store.
Report = Callable[[int, "Verb", str], None]


def unheard(_job_id: int, _verb: Verb, _fault: str) -> None:
    """The report of a store that nobody listens to."""


class Refusals:
    """What one store was refused, and until when its claims leave those rows alone."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._until: dict[int, float] = {}

    def tell(self, verb: Verb, errors: Mapping[int, Exception]) -> None:
        """Report rows by their ids."""
        for job_id, error in errors.items():
            self._report(job_id, verb, fault_of(error))

    def pause(self, ids: Iterable[int]) -> None:
        """Leave these rows alone for a while."""
        self._until.update(dict.fromkeys(ids, time.monotonic() + PAUSE))

    def paused(self, job_id: int) -> bool:
        """Whether this row is still to be left alone."""
        until = self._until.get(job_id)
        if until is None:
            return False
        if until > time.monotonic():
            return True
        del self._until[job_id]
        return False
