"""Events as log records: the level and the words of each.

The logger is `sa_jobqueue.runner`; every field of an event is in the record's `extra` under its own name, durations in
seconds as `<name>_seconds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never, get_args

from sa_jobqueue import events as ev
from sa_jobqueue.durations import format_duration
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY
from sa_jobqueue.states import JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGER_NAME = "sa_jobqueue.runner"
logger: logging.Logger = logging.getLogger(LOGGER_NAME)
_FIELDS: Mapping[type[ev.Event], tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind)) for kind in get_args(ev.Event)
}


class LogEvents:
    """The type of `log_event`."""

    def __call__(self, event: ev.Event) -> None:
        """Log it, at its level and in its words."""
        level, message = _line(event)
        if logger.isEnabledFor(level):
            # As `logger.log` does, but for its walk up the stack: it would always end here.
            extra = dict(_extra(event))
            logger.handle(
                logger.makeRecord(logger.name, level, __file__, 0, "%s", (message,), None, "log_event", extra)
            )

    def hears(self, kind: type[ev.Event], verb: Verb | None) -> bool:
        """False for what goes as it should while the logger is set to say less: every job brings such events."""
        if kind is ev.JobStarted or kind is ev.JobsClaimed:
            return logger.isEnabledFor(logging.DEBUG)
        if kind is ev.JobSettled and verb is Verb.COMPLETE:
            return logger.isEnabledFor(logging.INFO)
        return True


#: The subscriber: `Runner(..., subscribers=[log_event])` writes every event to the logger.
log_event: LogEvents = LogEvents()


def _extra(event: ev.Event) -> Iterator[tuple[str, Any]]:
    kind = type(event)
    yield "event", kind.__name__
    for name in _FIELDS[kind]:
        value = getattr(event, name)
        if type(value) is timedelta:
            yield f"{name}_seconds", value.total_seconds()
        elif value is not None:
            yield (
                name,
                value if isinstance(value, (str, int)) or not isinstance(value, Mapping) else dict(value),
            )


def _line(event: ev.Event) -> tuple[int, str]:
    """Level and message of each event: what a person needs to know now is INFO or above."""
    match event:
        case ev.RunnerStarted():
            return logging.INFO, (
                f"runner {event.runner_id} started: queues {_queues(event)}; kinds {', '.join(event.kinds)}"
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
        case ev.OutcomeDropped(cause="completed", verb=Verb.COMPLETE):
            return logging.WARNING, (
                f"{_job(event)}: it is done by the handler's own transaction, the result that the handler returned after that "
                "is not kept: give it to complete(result=...)"
            )
        case ev.OutcomeDropped(cause="completed"):
            why = "" if event.error is None else f": {_first_line(event.error)}"
            return logging.WARNING, (
                f"{_job(event)}: it is done by the handler's own transaction, what the handler ended in after that, "
                f"{event.verb}, is not written{why}"
            )
        case ev.OutcomeDropped():
            return logging.WARNING, (
                f"{_job(event)}: attempt {event.attempt} ended in {event.verb}, not written: {_CAUSES[event.cause]}"
            )
        case ev.CompletionInDoubt():
            return _in_doubt(event)
        case ev.LeaseLost():
            return logging.WARNING, f"{_job(event)}: lease lost while it runs: {_CAUSES[event.cause]}"
        case ev.HandlerTimedOut(completed=True):
            return logging.WARNING, (
                f"{_job(event)} still runs after its timeout of {format_duration(event.timeout)}, though its own transaction "
                "has completed the job; its slot stays occupied until it ends"
            )
        case ev.HandlerTimedOut(cancelled=True):
            return logging.INFO, (
                f"{_job(event)} is cancelled after its timeout of {format_duration(event.timeout)}; unless it ends within "
                f"{format_duration(event.given_up_in)} its slot stays occupied, and others may run the job again"
            )
        case ev.HandlerTimedOut():
            return logging.WARNING, (
                f"{_job(event)} still runs after its timeout of {format_duration(event.timeout)}: its lease is renewed no "
                f"more, and unless it ends within {format_duration(event.given_up_in)} the attempt has failed; its slot "
                "stays occupied until it ends"
            )
        case ev.CancelRequested():
            return logging.INFO, f"{_job(event)}: somebody asked to cancel it, the handler is told"
        case ev.LoopBlocked():
            return logging.WARNING, _blocked(event)
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
        case ev.RowRefused():
            return logging.WARNING, (
                f"job {event.job_id}: the database refuses its {event.verb} ({event.fault}), other jobs go on"
            )
        case ev.UnknownKinds():
            known = {
                name: f" (did you mean {' or '.join(near)}?)" for name, near in event.nearest.items() if near
            }
            kinds = ", ".join(
                f"{count} of {kind}{known.get(kind, '')}" for kind, count in event.kinds.items()
            )
            return logging.WARNING, f"due jobs without a handler here, left alone: {kinds}"
        case ev.UnknownKindsPostponed():
            return logging.WARNING, (
                f"due jobs without a handler here stood in the way of claims: {_waiting(event.queues)} are due later, "
                f"the last of them at {event.until:%Y-%m-%d %H:%M:%S %Z}; is a handler missing, or is this old code?"
            )
        case ev.UnservedQueues():
            return logging.WARNING, _unserved(event)
        case ev.PolicyFault():
            delay = "none" if event.delay is None else format_duration(event.delay)
            return (
                logging.ERROR,
                f"{_job(event)}: retry policy {event.fault}; the default policy's delay: {delay}",
            )
        case ev.WakeUpFailed(cause="unheard"):
            return logging.WARNING, (
                "what is notified in the database does not get here, so commits do not wake this runner and it polls: most "
                "often a transaction pooler is in between; give a direct address by --listen-url, or --no-listen"
            )
        case ev.WakeUpFailed():
            return logging.WARNING, (
                f"the database does not let this runner say that it waits for jobs ({event.fault}), so it polls: it needs "
                "SELECT, INSERT, UPDATE and DELETE on jobqueue_idle"
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
    "lost": "the job isn't this attempt's any more: taken over, given up after its timeout, or changed by an operator",
    "gone": "the row doesn't exist any more",
}


def _queues(event: ev.RunnerStarted) -> str:
    return ", ".join(
        f"{queue}:{count}" + (f"@{event.executors[queue]}" if queue in event.executors else "")
        for queue, count in event.queues.items()
    )


def _in_doubt(event: ev.CompletionInDoubt) -> tuple[int, str]:
    if event.error is None:
        known = "not known yet whether it is done, somebody else ends the handler's transaction"
        return logging.DEBUG, f"{_job(event)}: {known}"
    known = "not known whether the handler's own transaction has landed, finding out"
    return logging.WARNING, f"{_job(event)}: {known}: {_first_line(event.error)}"


def _blocked(event: ev.LoopBlocked) -> str:
    who = "something" if event.job_id is None else f"job {event.job_id} {event.kind}"
    return (
        f"{who} has blocked the event loop for {format_duration(event.duration)} now, at {event.location}: all other "
        "async handlers wait; declare its handler with def, or call what blocks through asyncio.to_thread"
    )


def _unserved(event: ev.UnservedQueues) -> str:
    missing = ",".join(f"{queue}:{DEFAULT_CONCURRENCY}" for queue in event.queues)
    return (
        "due jobs of kinds handled here wait in queues that this runner does not serve: "
        f"{_waiting(event.queues)}; add --queues {missing}"
    )


def _waiting(queues: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(
        f"{count} {kind} in {queue!r}" for queue, kinds in queues.items() for kind, count in kinds.items()
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
    | ev.CompletionInDoubt
    | ev.LeaseLost
    | ev.HandlerTimedOut
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
