"""What a drain answers, and the error of one that can't go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sa_jobqueue.errors import JobQueueError

if TYPE_CHECKING:
    from sa_jobqueue.testing._attempts import Performed


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How many runs came to which end, and each of them in `runs`, in their order.

    Two are equal when their counts are: `assert drain(session, jobs) == Drained(done=2)`. A retry that left no attempt
    counts as dead, not as retried.
    """

    done: int = 0
    retried: int = 0
    snoozed: int = 0
    dead: int = 0
    cancelled: int = 0
    runs: tuple[Performed, ...] = field(default=(), compare=False, repr=False)


class DrainError(JobQueueError):
    """A drain that can't go on: it has no end, or a handler took its transaction away.

    `drained` is what was done before.
    """

    def __init__(self, message: str, drained: Drained) -> None:
        super().__init__(message)
        self.drained = drained
