"""What a handler may say about its job, other than "done" (it returned) and "failed" (it raised).

    return Retry(after=timedelta(minutes=1))      the same attempt failed; try again later
    return Snooze(after=timedelta(hours=1))       too early; doesn't count as an attempt
    return Discard("the document was deleted")    never try again

Deep inside a call, where `return` doesn't reach, `raise Settle(Discard(...))` says the same. Anything else that a
handler returns means that the job is done. Plain values: writing them down is the runner's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_jobqueue.durations import check_delay
from sa_jobqueue.names import passed

if TYPE_CHECKING:
    from datetime import timedelta


def _check_reason(owner: str, reason: str) -> None:
    if not isinstance(reason, str):
        raise TypeError(f"{owner}: expected a text, got {passed(reason)}")
    if not reason.strip():
        raise ValueError(f"{owner}: a blank reason tells nobody anything, write why")


@dataclass(frozen=True, slots=True)
class Retry:
    """This attempt failed and counts; the job runs again, or is dead when its attempts are used up.

    `after` is the time to wait from now on the database's clock; None leaves it to the handler's retry policy.
    """

    after: timedelta | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.after is not None:
            check_delay("Retry(after=...)", self.after)
        if self.reason is not None:
            _check_reason("Retry(reason=...)", self.reason)


@dataclass(frozen=True, slots=True)
class Snooze:
    """The job can't run yet: run it again `after` that time. This start is given back and counts for nothing."""

    after: timedelta

    def __post_init__(self) -> None:
        check_delay("Snooze(after=...)", self.after)


@dataclass(frozen=True, slots=True)
class Discard:
    """No attempt will ever succeed: the job is dead at once, and `reason` is kept for people to read."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason("Discard(reason=...)", self.reason)


Outcome = Retry | Snooze | Discard


class Settle(Exception):  # noqa: N818 - a way to leave a handler, no error
    """Raise it to leave a handler with an outcome: `raise Settle(Retry(after=timedelta(minutes=1)))`.

    It is no JobQueueError, so that code which catches the library's errors lets it pass; `except Exception` around it
    does catch it. With `from error` the error's text is kept with the outcome. Raises TypeError for anything that is
    no Retry, Snooze or Discard.
    """

    outcome: Outcome

    def __init__(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Retry | Snooze | Discard):
            raise TypeError(
                f"Settle(...): expected a Retry, Snooze or Discard, got {passed(outcome)}: raise Settle(Discard('why'))"
            )
        super().__init__(outcome)
        self.outcome = outcome
