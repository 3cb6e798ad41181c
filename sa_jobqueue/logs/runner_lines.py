"""The lines of a runner, its loops and its connections: level and message of each event."""

from __future__ import annotations

import logging
from typing import assert_never

from sa_jobqueue import events as ev
from sa_jobqueue.durations import format_duration
from sa_jobqueue.logs.words import counts, first_line, number


def runner_line(event: ev.RunnerEvent) -> tuple[int, str]:
    """What happened to a runner: what a person needs to know now is INFO or above."""
    match event:
        case ev.RunnerStarted():
            return logging.INFO, (
                f"runner {event.runner_id} started: queues {_queues(event)}; kinds {', '.join(event.kinds)}"
            )
        case ev.RunnerStopping():
            return logging.INFO, (
                f"runner {event.runner_id} stops ({event.cause}): claims nothing more, waits up to "
                f"{format_duration(event.grace)} for {number(event.running, 'running job')}"
            )
        case ev.RunnerStopped():
            level = logging.WARNING if event.handed_back or event.exit_code else logging.INFO
            rest = "".join(
                f", {number(count, 'running job')} {fate}"
                for count, fate in (
                    (event.handed_back, "handed back"),
                    (event.left_to_leases, "left to the end of the lease"),
                )
                if count
            )
            return level, f"runner {event.runner_id} stopped with code {event.exit_code}{rest}"
        case ev.JobsClaimed():
            return logging.DEBUG, (
                f"claimed {number(event.count, 'job')} ({counts(event.queues, ' ')}) in {format_duration(event.duration)}"
            )
        case ev.LoopBlocked():
            return logging.WARNING, _blocked(event)
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
            return logging.CRITICAL, f"the {event.loop} loop ended for good: {first_line(event.error)}"
        case ev.LoopFailed():
            times = "" if event.failures == 1 else f" ({event.failures} times now)"
            return (
                logging.ERROR,
                f"the {event.loop} loop fails{times}, it goes on trying: {first_line(event.error)}",
            )
        case ev.LoopRecovered():
            return logging.INFO, (
                f"the {event.loop} loop works again after {format_duration(event.after)} and {number(event.failures, 'failure')}"
            )
        case _:
            assert_never(event)


def _queues(event: ev.RunnerStarted) -> str:
    return ", ".join(
        f"{queue}:{count}" + (f"@{event.executors[queue]}" if queue in event.executors else "")
        for queue, count in event.queues.items()
    )


def _blocked(event: ev.LoopBlocked) -> str:
    who = "something" if event.job_id is None else f"job {event.job_id} {event.kind}"
    return (
        f"{who} has blocked the event loop for {format_duration(event.duration)} now, at {event.location}: all other "
        "async handlers wait; declare its handler with def, or call what blocks through asyncio.to_thread"
    )
