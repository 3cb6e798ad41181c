"""Events as log records; the level and the words of each stand by its subject, in `job_lines` and its neighbours.

The logger is `sa_jobqueue.runner`; every field of an event is in the record's `extra` under its own name, durations in
seconds as `<name>_seconds`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from sa_jobqueue import events as ev
from sa_jobqueue.logs.job_lines import job_line
from sa_jobqueue.logs.runner_lines import runner_line
from sa_jobqueue.logs.table_lines import table_line
from sa_jobqueue.states import Verb

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
    if isinstance(event, ev.JobEvent):
        return job_line(event)
    return table_line(event) if isinstance(event, ev.TableEvent) else runner_line(event)
