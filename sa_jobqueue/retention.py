"""Retention: for how long finished jobs are kept before a prune deletes them.

A policy of runners; the deleting itself stands in `statements.prune`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.durations import check_delay
from sa_jobqueue.states import TERMINAL, JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long jobs of each terminal status are kept from their end on; None keeps them for ever.

    timedelta(0) lets the next prune delete them. A key protects, and `done` proves what a lost answer left open, for no
    longer than that. Raises TypeError or ValueError, naming the status, for what is no duration from 0 to 100 years.
    """

    done: timedelta | None = timedelta(days=3)
    cancelled: timedelta | None = timedelta(days=3)
    dead: timedelta | None = None

    def __post_init__(self) -> None:
        for status, age in self._ages.items():
            if age is not None:
                check_delay(f"retention.{status}", age)

    @property
    def pruned(self) -> Mapping[JobStatus, timedelta]:
        """The statuses that are not kept for ever, and for how long they are."""
        return {status: age for status, age in self._ages.items() if age is not None}

    @property
    def _ages(self) -> Mapping[JobStatus, timedelta | None]:
        return {status: getattr(self, status) for status in TERMINAL}
