"""Who listens, and how they are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from sa_jobqueue.events.jobs import AnyJobEvent
from sa_jobqueue.events.runners import RunnerEvent
from sa_jobqueue.events.tables import TableEvent
from sa_jobqueue.failures import describe_error
from sa_jobqueue.states import Verb

Event = AnyJobEvent | RunnerEvent | TableEvent

#: Called in the thread where it happened, so it must be quick and thread-safe; what it raises goes nowhere.
#:
#: One that has a method `hears(kind, verb) -> bool` says by False that it has no use now for what goes as it should:
#: JobsClaimed, JobStarted, and JobSettled with the verb complete and no fault. Every job brings such events, and what
#: nobody hears is not made. For all others `verb` is None, and they are told in any case.
Subscriber = Callable[[Event], None]


class Subscribers:
    """Everyone who listens to one runner. False when nobody does, so that an event need not even be made."""

    __slots__ = ("_reported", "_subscribers")

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self._subscribers = tuple(subscribers)
        self._reported: set[int] = set()
        for subscriber in self._subscribers:
            if not callable(subscriber):
                raise TypeError(f"subscribers: expected functions that take an event, got {subscriber!r}")

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def hear(self, kind: type[Event], verb: Verb | None = None) -> bool:
        """Whether anybody has a use for such an event, so that it is worth making.

        A subscriber that fails to say is told.
        """
        return any(_hears(subscriber, kind, verb) for subscriber in self._subscribers)

    def emit(self, event: Event) -> None:
        """Tell everyone, in order. Never raises: a subscriber that fails is warned about once, and called again."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except BaseException as error:  # a subscriber must not end the loop that it listens to
                with suppress(BaseException):  # nor may a logging handler, which may be what has just failed
                    self._report(subscriber, event, error)

    def _report(self, subscriber: Subscriber, event: Event, error: BaseException) -> None:
        if id(subscriber) in self._reported:
            return
        self._reported.add(id(subscriber))
        # Without any logging set up this still reaches stderr, as Python's last resort.
        logging.getLogger("sa_jobqueue.events").warning(
            "the subscriber %s failed on %s and isn't reported again: %s",
            getattr(subscriber, "__qualname__", type(subscriber).__qualname__),
            type(event).__name__,
            describe_error(error),
        )


def _hears(subscriber: Subscriber, kind: type[Event], verb: Verb | None) -> bool:
    try:
        hears = getattr(subscriber, "hears", None)
        return hears is None or bool(hears(kind, verb))
    except BaseException:
        return True
