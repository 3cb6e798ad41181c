"""Events as log records: the level and the words of each.

The logger is `sa_jobqueue.runner`; every field of an event is in the record's `extra` under its own name, durations in
seconds as `<name>_seconds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from sa_jobqueue import events as ev
from sa_jobqueue.durations import format_duration
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY
from sa_jobqueue.states import JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGER_NAME = "sa_jobqueue.runner"
logger: logging.Logger = logging.getLogger(LOGGER_NAME)


def log_event(event: ev.Event) -> None:
    """The subscriber: `Runner(..., subscribers=[log_event])` writes every event to the logger."""
    if not logger.isEnabledFor(_highest_level(event)):
        return
    level, message = _line(event)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", message, extra=dict(_extra(event)))


def _highest_level(event: ev.Event) -> int:
    """What the event can be logged at, told without making its words: every job brings some that are logged nowhere."""
    match event:
        case ev.JobStarted() | ev.JobsClaimed():
            return logging.DEBUG
        case ev.JobSettled(verb=Verb.COMPLETE, fault=None):
            return logging.INFO
        case _:
            return logging.CRITICAL


def _extra(event: ev.Event) -> Iterator[tuple[str, Any]]:
    yield "event", type(event).__name__
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, timedelta):
            yield f"{field.name}_seconds", value.total_seconds()
        elif value is not None:
            yield field.name, dict(value) if isinstance(value, Mapping) else value


def _line(event: ev.Event) -> tuple[int, str]:
    """Level and message of each event: what a person needs to know now is INFO or above."""
    match event:
        case ev.RunnerStarted():
            return logging.INFO, (
                f"runner {event.runner_id} started: queues {_counts(event.queues, ':')}; kinds {', '.join(event.kinds)}"
            )
        case ev.RunnerStopping():
            return logging.INFO, (
                f"runner {event.runner_id} stops ({event.cause}): claims nothing more, waits up to "
                f"{format_duration(event.grace)} for {_number(event.running, 'running job')}"
            )
        case ev.RunnerStopped():
            level = logging.WARNING if event.handed_back or event.exit_code else logging.INFO
            rest = "".join(
                f", {_number(count, 'running job')} {fate}"
                for count, fate in (
                    (event.handed_back, "handed back"),
                    (event.left_to_leases, "left to the end of the lease"),
                )
                if count
            )
            return level, f"runner {event.runner_id} stopped with code {event.exit_code}{rest}"
        case ev.JobsClaimed():
            return logging.DEBUG, (
                f"claimed {_number(event.count, 'job')} ({_counts(event.queues, ' ')}) in {format_duration(event.duration)}"
            )
        case ev.JobStarted():
            return logging.DEBUG, f"{_job(event)} started, attempt {event.attempt} of {event.max_attempts}"
        case ev.JobSettled():
            return _settled(event)
        case ev.SettleDelayed(fault=str()):
            return logging.WARNING, (
                f"{_job(event)}: the database refuses its {event.verb} ({event.fault}), again in "
                f"{format_duration(event.retry_in)}"
            )
        case ev.SettleDelayed(cause="busy"):
            return logging.DEBUG, (
                f"{_job(event)}: somebody's transaction holds the row, {event.verb} again in "
                f"{format_duration(event.retry_in)}"
            )
        case ev.SettleDelayed():
            return logging.WARNING, f"{_job(event)}: the lease was past, it is renewed before {event.verb}"
        case ev.OutcomeDropped():
            return logging.WARNING, (
                f"{_job(event)}: attempt {event.attempt} ended in {event.verb}, not written: {_CAUSES[event.cause]}"
            )
        case ev.LeaseLost():
            return logging.WARNING, f"{_job(event)}: lease lost while it runs: {_CAUSES[event.cause]}"
        case ev.CancelRequested():
            return logging.INFO, f"{_job(event)}: somebody asked to cancel it, the handler is told"
        case ev.JobRescued():
            level = logging.ERROR if event.status is JobStatus.DEAD else logging.WARNING
            owner = event.leased_by or "its runner"
            lost = f"{owner} let its lease pass at attempt {event.attempt}"
            return level, f"{_job(event)} rescued: {lost}; now {event.status}"
        case ev.JobsPruned():
            return logging.INFO, f"pruned {_number(event.count, f'{event.status} job')} past the retention"
        case ev.PruneRefused():
            return logging.WARNING, (
                f"the database keeps {_number(event.count, f'{event.status} job')} past the retention: {event.fault}"
            )
        case ev.UnknownKinds():
            known = {
                name: f" (did you mean {' or '.join(near)}?)" for name, near in event.nearest.items() if near
            }
            kinds = ", ".join(
                f"{count} of {kind}{known.get(kind, '')}" for kind, count in event.kinds.items()
            )
            return logging.WARNING, f"due jobs without a handler here, left alone: {kinds}"
        case ev.UnservedQueues():
            return logging.WARNING, _unserved(event)
        case ev.PolicyFault():
            delay = "none" if event.delay is None else format_duration(event.delay)
            return (
                logging.ERROR,
                f"{_job(event)}: retry policy {event.fault}; the default policy's delay: {delay}",
            )
        case ev.LoopFailed(retry_in=None):
            return logging.CRITICAL, f"the {event.loop} loop ended for good: {_first_line(event.error)}"
        case ev.LoopFailed():
            times = "" if event.failures == 1 else f" ({event.failures} times now)"
            return (
                logging.ERROR,
                f"the {event.loop} loop fails{times}, it goes on trying: {_first_line(event.error)}",
            )
        case ev.LoopRecovered():
            return logging.INFO, (
                f"the {event.loop} loop works again after {format_duration(event.after)} and {_number(event.failures, 'failure')}"
            )
        case _:
            assert_never(event)


_CAUSES = {
    "lost": "another owner or an operator has the job",
    "gone": "the row doesn't exist any more",
}


def _unserved(event: ev.UnservedQueues) -> str:
    waiting = ", ".join(
        f"{count} {kind} in {queue!r}"
        for queue, kinds in event.queues.items()
        for kind, count in kinds.items()
    )
    missing = ",".join(f"{queue}:{DEFAULT_CONCURRENCY}" for queue in event.queues)
    return (
        "due jobs of kinds handled here wait in queues that this runner does not serve: "
        f"{waiting}; add --queues {missing}"
    )


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
    why = "".join(f": {_first_line(text)}" for text in texts)
    of = f"attempt {event.attempt} of {event.max_attempts}"
    match event.verb, event.status:
        case Verb.COMPLETE, _:
            return logging.INFO, f"{_job(event)} done{took}"
        case _, JobStatus.CANCELLED:
            return logging.INFO, f"{_job(event)} cancelled{why}"
        case _, JobStatus.DEAD:
            return logging.ERROR, f"{_job(event)} is dead after {of}{why}"
        case Verb.RETRY, _:
            return logging.WARNING, f"{_job(event)} failed{took}, {of}, again{wait or ' at once'}{why}"
        case Verb.SNOOZE, _:
            return logging.INFO, f"{_job(event)} snoozed, again{wait or ' at once'}"
        case _:
            return logging.INFO, f"{_job(event)}: {event.verb}, now {event.status}{why}"


def _job(
    event: ev.JobStarted
    | ev.JobSettled
    | ev.SettleDelayed
    | ev.OutcomeDropped
    | ev.LeaseLost
    | ev.CancelRequested
    | ev.JobRescued
    | ev.PolicyFault,
) -> str:
    return f"job {event.job_id} {event.kind}"


def _counts(counts: Mapping[str, int], between: str) -> str:
    return ", ".join(f"{name}{between}{count}" for name, count in counts.items())


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
