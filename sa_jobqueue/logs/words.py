"""Words that several lines of the log share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_jobqueue.events import JobEvent


def named(event: JobEvent) -> str:
    return f"job {event.job_id} {event.kind}"


def counts(counts: Mapping[str, int], between: str) -> str:
    return ", ".join(f"{name}{between}{count}" for name, count in counts.items())


def number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_line(text: str) -> str:
    return text.partition("\n")[0]
