"""What a completion asks of whoever holds the job's lease, and the record of what became of it.

The runner is such an owner, and so is a test that drains a queue. A completion knows neither: no loops, no threads, no
book.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sa_jobqueue.records import LeaseKey, Progress


class Fate(StrEnum):
    """How far a completion has come.

    open: its fence has not been sent. undone: it ended before that, nothing of it is in the database. landed: fence and
    COMMIT were answered, the job is done. lost: the fence found that the job is another's, nothing was written.
    doubtful: an answer is missing after the fence was sent, or somebody else has yet to end the transaction.
    """

    OPEN = "open"
    UNDONE = "undone"
    LANDED = "landed"
    LOST = "lost"
    DOUBTFUL = "doubtful"


class Completion:
    """One completion of one job. Written where the handler runs, read by the owner when the handler has ended.

    `result` is JSON text to be stored with it. `error` is what ended a completion that has not landed. `xid` is the
    transaction that the fence ran in, as soon as it has answered.
    """

    __slots__ = ("error", "fate", "key", "result", "xid")

    def __init__(self, key: LeaseKey, result: str | None = None) -> None:
        self.key: LeaseKey = key
        self.result: str | None = result
        self.fate: Fate = Fate.OPEN
        self.error: BaseException | None = None
        self.xid: int | None = None


class LeaseOwner(Protocol):
    """What a completion asks of whoever holds the lease; from the handler's thread or task."""

    def begin(self, completion: Completion) -> None:
        """A completion begins: see that most of the lease is left, so that one that is lost fails here.

        May block. Raises LeaseLostError, and RuntimeError for a second completion of a run, unless the first is undone.
        """

    def hold_renewals(self, completion: Completion) -> None:
        """From the return on no renewal of ours changes the row. May block until one under way has been answered."""

    def resume_renewals(self, completion: Completion) -> None:
        """Renew it again, as any other."""

    def fencing(self, completion: Completion) -> None:
        """The fence is about to be sent: until the handler has ended nobody but the completion judges this lease.

        Raises LeaseLostError when the owner has decided the job in the handler's place meanwhile: no fence may be sent.
        """

    def unwritten_progress(self, completion: Completion) -> Progress | None:
        """What the handler has reported last, if nobody has written it: with the fence goes the right to do so."""
        ...

    def decided(self, completion: Completion) -> None:
        """Its fate is known, or will have to be found out; called once, and never raises."""
