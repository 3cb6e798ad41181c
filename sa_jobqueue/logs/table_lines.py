"""The lines of what a runner found in the tables: level and message of each event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import assert_never

from sa_jobqueue import events as ev
from sa_jobqueue.logs.words import number
from sa_jobqueue.runner.settings import DEFAULT_CONCURRENCY


def table_line(event: ev.TableEvent) -> tuple[int, str]:
    """What a runner found in the tables: what a person needs to know now is INFO or above."""
    match event:
        case ev.JobsPruned():
            return logging.INFO, f"pruned {number(event.count, f'{event.status} job')} past the retention"
        case ev.PruneRefused():
            return logging.WARNING, (
                f"the database keeps {number(event.count, f'{event.status} job')} past the retention: {event.fault}"
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
        case _:
            assert_never(event)


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
