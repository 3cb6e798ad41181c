"""The lines of one job: level and message of each event."""

from __future__ import annotations

import logging
from typing import assert_never

from sa_jobqueue import events as ev
from sa_jobqueue.durations import format_duration
from sa_jobqueue.logs.words import first_line, named
from sa_jobqueue.states import JobStatus, Verb

_CAUSES = {
    "lost": "the job isn't this attempt's any more: taken over, given up after its timeout, or changed by an operator",
    "gone": "the row doesn't exist any more",
}


def job_line(event: ev.AnyJobEvent) -> tuple[int, str]:
    """What happened to a job: what a person needs to know now is INFO or above."""
    match event:
        case ev.JobStarted():
            return logging.DEBUG, f"{named(event)} started, attempt {event.attempt} of {event.max_attempts}"
        case ev.JobSettled():
            return _settled(event)
        case ev.SettleDelayed(fault=str()):
            return logging.WARNING, (
                f"{named(event)}: the database refuses its {event.verb} ({event.fault}), again in "
                f"{format_duration(event.retry_in)}"
            )
        case ev.SettleDelayed(cause="busy"):
            return logging.DEBUG, (
                f"{named(event)}: somebody's transaction holds the row, {event.verb} again in "
                f"{format_duration(event.retry_in)}"
            )
        case ev.SettleDelayed():
            return logging.WARNING, f"{named(event)}: the lease was past, it is renewed before {event.verb}"
        case ev.OutcomeDropped(cause="completed", verb=Verb.COMPLETE):
            return logging.WARNING, (
                f"{named(event)}: it is done by the handler's own transaction, the result that the handler returned after "
                "that is not kept: give it to complete(result=...)"
            )
        case ev.OutcomeDropped(cause="completed"):
            why = "" if event.error is None else f": {first_line(event.error)}"
            return logging.WARNING, (
                f"{named(event)}: it is done by the handler's own transaction, what the handler ended in after that, "
                f"{event.verb}, is not written{why}"
            )
        case ev.OutcomeDropped():
            return logging.WARNING, (
                f"{named(event)}: attempt {event.attempt} ended in {event.verb}, not written: {_CAUSES[event.cause]}"
            )
        case ev.CompletionInDoubt():
            return _in_doubt(event)
        case ev.LeaseLost():
            return logging.WARNING, f"{named(event)}: lease lost while it runs: {_CAUSES[event.cause]}"
        case ev.HandlerTimedOut(completed=True):
            return logging.WARNING, (
                f"{named(event)} still runs after its timeout of {format_duration(event.timeout)}, though its own transaction "
                "has completed the job; its slot stays occupied until it ends"
            )
        case ev.HandlerTimedOut(cancelled=True):
            return logging.INFO, (
                f"{named(event)} is cancelled after its timeout of {format_duration(event.timeout)}; unless it ends within "
                f"{format_duration(event.given_up_in)} its slot stays occupied, and others may run the job again"
            )
        case ev.HandlerTimedOut():
            return logging.WARNING, (
                f"{named(event)} still runs after its timeout of {format_duration(event.timeout)}: its lease is renewed no "
                f"more, and unless it ends within {format_duration(event.given_up_in)} the attempt has failed; its slot "
                "stays occupied until it ends"
            )
        case ev.CancelRequested():
            return logging.INFO, f"{named(event)}: somebody asked to cancel it, the handler is told"
        case ev.NewerPayload():
            return logging.WARNING, (
                f"{named(event)}: its payload has version {event.payload_version}, and the handler here takes up to "
                f"{event.newest}: put back for {format_duration(event.retry_in)}, for a runner with newer code"
            )
        case ev.JobRescued():
            level = logging.ERROR if event.status is JobStatus.DEAD else logging.WARNING
            owner = event.leased_by or "its runner"
            lost = f"{owner} let its lease pass at attempt {event.attempt}"
            return level, f"{named(event)} rescued: {lost}; now {event.status}"
        case ev.PolicyFault():
            delay = "none" if event.delay is None else format_duration(event.delay)
            return (
                logging.ERROR,
                f"{named(event)}: retry policy {event.fault}; the default policy's delay: {delay}",
            )
        case _:
            assert_never(event)


def _in_doubt(event: ev.CompletionInDoubt) -> tuple[int, str]:
    if event.error is None:
        known = "not known yet whether it is done, somebody else ends the handler's transaction"
        return logging.DEBUG, f"{named(event)}: {known}"
    known = "not known whether the handler's own transaction has landed, finding out"
    return logging.WARNING, f"{named(event)}: {known}: {first_line(event.error)}"


def _settled(event: ev.JobSettled) -> tuple[int, str]:
    level, message = _outcome(event)
    if event.fault is None:
        return level, message
    return max(level, logging.WARNING), f"{message}; stored without its details ({event.fault})"


def _outcome(event: ev.JobSettled) -> tuple[int, str]:
    took = "" if event.duration is None else f" in {format_duration(event.duration)}"
    wait = "" if event.delay is None else f" in {format_duration(event.delay)}"
    # A reason that only repeats the status, that of a cancelled job, tells nothing.
    texts = [text for text in (event.reason, event.error) if text and text != event.status]
    why = "".join(f": {first_line(text)}" for text in texts)
    of = f"attempt {event.attempt} of {event.max_attempts}"
    match event.verb, event.status:
        case Verb.COMPLETE, _:
            return logging.INFO, f"{named(event)} done{took}"
        case _, JobStatus.CANCELLED:
            return logging.INFO, f"{named(event)} cancelled{why}"
        case _, JobStatus.DEAD:
            return logging.ERROR, f"{named(event)} is dead after {of}{why}"
        case Verb.RETRY, _:
            return logging.WARNING, f"{named(event)} failed{took}, {of}, again{wait or ' at once'}{why}"
        case Verb.SNOOZE, _:
            return logging.INFO, f"{named(event)} snoozed, again{wait or ' at once'}"
        case _:
            return logging.INFO, f"{named(event)}: {event.verb}, now {event.status}{why}"
