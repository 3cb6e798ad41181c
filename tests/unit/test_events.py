"""Subscribers hear everything and can hurt nobody."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import get_args

import pytest

from sa_jobqueue.events import Event, JobsClaimed, JobSettled, JobStarted, LoopRecovered, Subscribers
from sa_jobqueue.states import Verb

STARTED = JobStarted(job_id=1, kind="k", queue="default", attempt=1, max_attempts=5)
RECOVERED = LoopRecovered(runner_id="r", loop="dispatcher", failures=3, after=timedelta(seconds=7))


def test_everyone_hears_every_event_in_order() -> None:
    """Subscribers are called in the order given, events in the order emitted."""
    heard: list[tuple[str, Event]] = []
    subscribers = Subscribers(
        [lambda event: heard.append(("a", event)), lambda event: heard.append(("b", event))]
    )
    subscribers.emit(STARTED)
    subscribers.emit(RECOVERED)
    assert heard == [("a", STARTED), ("b", STARTED), ("a", RECOVERED), ("b", RECOVERED)]


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1)])
def test_a_failing_subscriber_is_reported_once_and_hurts_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop and the other subscribers go on; the log isn't flooded; the failing one is tried again."""
    calls: list[str] = []

    def broken(event: Event) -> None:
        calls.append("broken")
        raise error

    subscribers = Subscribers([broken, lambda _event: calls.append("next")])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            subscribers.emit(STARTED)
    assert calls == ["broken", "next"] * 3
    (record,) = caplog.records
    assert "broken failed on JobStarted" in record.getMessage()
    assert str(error) in record.getMessage()


def test_logging_that_fails_as_well_hurts_nobody() -> None:
    """The subscriber that failed may be the log, whose handler then fails on the report too."""
    told: list[Event] = []

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit("no log for you")

    logger, handler = logging.getLogger("sa_jobqueue"), Broken()
    logger.addHandler(handler)
    try:
        Subscribers([lambda _event: logger.warning("anything"), told.append]).emit(STARTED)
    finally:
        logger.removeHandler(handler)
    assert told == [STARTED]


def test_nobody_listening_is_false() -> None:
    """Whoever emits can skip making the event."""
    assert not Subscribers()
    assert Subscribers([lambda _event: None])
    Subscribers().emit(STARTED)


class Choosy:
    """A subscriber that has a use for dead jobs only."""

    def __call__(self, event: Event) -> None: ...

    def hears(self, kind: type[Event], verb: Verb | None) -> bool:
        return kind is JobSettled and verb is Verb.DISCARD


def test_what_nobody_hears_need_not_be_made() -> None:
    """A subscriber may say what it has no use for; one that doesn't say, or fails to, hears everything."""
    choosy = Subscribers([Choosy()])
    assert choosy.hear(JobSettled, Verb.DISCARD)
    assert not choosy.hear(JobSettled, Verb.COMPLETE)
    assert not choosy.hear(JobStarted)
    assert Subscribers([Choosy(), lambda _event: None]).hear(JobStarted)
    assert not Subscribers().hear(JobStarted)


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1)])
def test_a_subscriber_that_fails_to_say_is_told(error: BaseException) -> None:
    """Better an event too many than one that nobody hears of."""

    class Broken(Choosy):
        def hears(self, kind: type[Event], verb: Verb | None) -> bool:
            raise error

    assert Subscribers([Broken()]).hear(JobStarted)


def test_a_subscriber_is_callable() -> None:
    """A wrong subscriber fails when the runner is made."""
    with pytest.raises(TypeError, match="subscribers: expected functions"):
        Subscribers(["log"])  # type: ignore[list-item]


def test_no_event_has_room_for_a_payload() -> None:
    """Payloads may hold what must not reach a log, a metric or a trace."""
    for event in get_args(Event):
        assert not {"payload", "result", "context"} & set(event.__dataclass_fields__)
        assert "id" not in event.__dataclass_fields__


def test_claimed_counts_its_queues() -> None:
    """The total and its parts can't disagree."""
    assert JobsClaimed(runner_id="r", queues={"a": 2, "b": 3}, duration=timedelta(0)).count == 5
