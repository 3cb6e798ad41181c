"""Events in the log: the right level, the right words, the same fields."""

from __future__ import annotations

import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from sa_jobqueue import events as ev
from sa_jobqueue.logs import log_event, logger
from sa_jobqueue.states import JobStatus, Verb

JOB: dict[str, Any] = {"job_id": 17, "kind": "document.embed", "queue": "ai", "attempt": 2}
SECOND = timedelta(seconds=1)
ERROR = "ValueError: boom\n  at app/jobs.py:3 in app.embed"


def settled(verb: Verb, status: JobStatus, **more: Any) -> ev.JobSettled:
    """A settled job."""
    return ev.JobSettled(**JOB, max_attempts=5, verb=verb, status=status, **more)


LINES: list[tuple[ev.Event, str, str]] = [
    (
        ev.RunnerStarted(runner_id="r", queues={"ai": 4, "default": 10}, kinds=("a", "b")),
        "INFO",
        "runner r started: queues ai:4, default:10; kinds a, b",
    ),
    (
        ev.RunnerStarted(
            runner_id="r",
            queues={"ai": 200, "mail": 10},
            kinds=("a",),
            executors={"ai": "asyncio", "mail": "thread"},
        ),
        "INFO",
        "runner r started: queues ai:200@asyncio, mail:10@thread; kinds a",
    ),
    (
        ev.LoopBlocked(runner_id="r", **JOB, duration=SECOND, location="app/jobs.py:3 in app.embed"),
        "WARNING",
        (
            "job 17 document.embed has blocked the event loop for 1s now, at app/jobs.py:3 in app.embed: all other async "
            "handlers wait; declare its handler with def, or call what blocks through asyncio.to_thread"
        ),
    ),
    (
        ev.LoopBlocked(
            runner_id="r",
            job_id=None,
            kind=None,
            queue=None,
            attempt=None,
            duration=SECOND,
            location="a.py:1",
        ),
        "WARNING",
        (
            "something has blocked the event loop for 1s now, at a.py:1: all other async handlers wait; declare its handler "
            "with def, or call what blocks through asyncio.to_thread"
        ),
    ),
    (
        ev.RunnerStopping(runner_id="r", cause="SIGTERM", running=3, grace=25 * SECOND),
        "INFO",
        "runner r stops (SIGTERM): claims nothing more, waits up to 25s for 3 running jobs",
    ),
    (ev.RunnerStopped(runner_id="r", exit_code=0, handed_back=0), "INFO", "runner r stopped with code 0"),
    (
        ev.RunnerStopped(runner_id="r", exit_code=7, handed_back=1),
        "WARNING",
        "runner r stopped with code 7, 1 running job handed back",
    ),
    (
        ev.JobsClaimed(runner_id="r", queues={"ai": 2, "default": 3}, duration=SECOND / 200),
        "DEBUG",
        "claimed 5 jobs (ai 2, default 3) in 5ms",
    ),
    (ev.JobStarted(**JOB, max_attempts=5), "DEBUG", "job 17 document.embed started, attempt 2 of 5"),
    (
        settled(Verb.COMPLETE, JobStatus.DONE, duration=1.2 * SECOND),
        "INFO",
        "job 17 document.embed done in 1.2s",
    ),
    (
        settled(Verb.RETRY, JobStatus.READY, duration=SECOND, delay=20 * SECOND, error=ERROR),
        "WARNING",
        "job 17 document.embed failed in 1s, attempt 2 of 5, again in 20s: ValueError: boom",
    ),
    (
        settled(Verb.RETRY, JobStatus.DEAD, duration=SECOND, delay=20 * SECOND, error=ERROR),
        "ERROR",
        "job 17 document.embed is dead after attempt 2 of 5: ValueError: boom",
    ),
    (
        settled(Verb.DISCARD, JobStatus.DEAD, reason="discarded: gone"),
        "ERROR",
        "job 17 document.embed is dead after attempt 2 of 5: discarded: gone",
    ),
    (
        settled(Verb.RETRY, JobStatus.CANCELLED, error=ERROR),
        "INFO",
        "job 17 document.embed cancelled: ValueError: boom",
    ),
    (
        settled(Verb.ABORT, JobStatus.CANCELLED, reason="expired"),
        "INFO",
        "job 17 document.embed cancelled: expired",
    ),
    (
        settled(Verb.ABORT, JobStatus.CANCELLED, reason="cancelled"),
        "INFO",
        "job 17 document.embed cancelled",
    ),
    (
        settled(Verb.SNOOZE, JobStatus.READY, delay=timedelta(hours=1)),
        "INFO",
        "job 17 document.embed snoozed, again in 1h",
    ),
    (settled(Verb.RELEASE, JobStatus.READY), "INFO", "job 17 document.embed: release, now ready"),
    (
        ev.SettleDelayed(**JOB, verb=Verb.COMPLETE, cause="busy", retry_in=SECOND / 20),
        "DEBUG",
        "job 17 document.embed: somebody's transaction holds the row, complete again in 50ms",
    ),
    (
        ev.SettleDelayed(**JOB, verb=Verb.COMPLETE, cause="expired", retry_in=SECOND),
        "WARNING",
        "job 17 document.embed: the lease was past, it is renewed before complete",
    ),
    (
        ev.SettleDelayed(
            **JOB, verb=Verb.COMPLETE, cause="busy", retry_in=5 * SECOND, fault="CheckViolation, constraint c"
        ),
        "WARNING",
        "job 17 document.embed: the database refuses its complete (CheckViolation, constraint c), again in 5s",
    ),
    (
        settled(Verb.COMPLETE, JobStatus.DONE, duration=SECOND, fault="DataError, SQLSTATE 22P05"),
        "WARNING",
        "job 17 document.embed done in 1s; stored without its details (DataError, SQLSTATE 22P05)",
    ),
    (
        settled(Verb.DISCARD, JobStatus.DEAD, reason="gone", fault="DataError"),
        "ERROR",
        "job 17 document.embed is dead after attempt 2 of 5: gone; stored without its details (DataError)",
    ),
    (
        ev.JobsPruned(runner_id="r", status=JobStatus.DONE, count=1200),
        "INFO",
        "pruned 1200 done jobs past the retention",
    ),
    (
        ev.PruneRefused(
            runner_id="r", status=JobStatus.DEAD, count=1, fault="ForeignKeyViolation, constraint c"
        ),
        "WARNING",
        "the database keeps 1 dead job past the retention: ForeignKeyViolation, constraint c",
    ),
    (
        ev.HandlerTimedOut(**JOB, timeout=30 * SECOND, given_up_in=80 * SECOND, cancelled=False),
        "WARNING",
        (
            "job 17 document.embed still runs after its timeout of 30s: its lease is renewed no more, and unless it "
            "ends within 1m 20s the attempt has failed; its slot stays occupied until it ends"
        ),
    ),
    (
        ev.HandlerTimedOut(**JOB, timeout=30 * SECOND, given_up_in=80 * SECOND, cancelled=True),
        "INFO",
        (
            "job 17 document.embed is cancelled after its timeout of 30s; unless it ends within 1m 20s its slot stays "
            "occupied, and others may run the job again"
        ),
    ),
    (
        ev.OutcomeDropped(**JOB, verb=Verb.COMPLETE, cause="gone"),
        "WARNING",
        "job 17 document.embed: attempt 2 ended in complete, not written: the row doesn't exist any more",
    ),
    (
        ev.OutcomeDropped(**JOB, verb=Verb.RETRY, cause="completed", error=ERROR),
        "WARNING",
        (
            "job 17 document.embed: it is done by the handler's own transaction, what the handler ended in after that, "
            "retry, is not written: ValueError: boom"
        ),
    ),
    (
        ev.OutcomeDropped(**JOB, verb=Verb.COMPLETE, cause="completed"),
        "WARNING",
        (
            "job 17 document.embed: it is done by the handler's own transaction, the result that the handler returned after "
            "that is not kept: give it to complete(result=...)"
        ),
    ),
    (
        ev.CompletionInDoubt(**JOB, error=ERROR),
        "WARNING",
        (
            "job 17 document.embed: not known whether the handler's own transaction has landed, finding out: "
            "ValueError: boom"
        ),
    ),
    (
        ev.CompletionInDoubt(**JOB),
        "DEBUG",
        "job 17 document.embed: not known yet whether it is done, somebody else ends the handler's transaction",
    ),
    (
        ev.LeaseLost(**JOB, cause="lost"),
        "WARNING",
        (
            "job 17 document.embed: lease lost while it runs: the job isn't this attempt's any more: taken over, given up "
            "after its timeout, or changed by an operator"
        ),
    ),
    (
        ev.CancelRequested(**JOB),
        "INFO",
        "job 17 document.embed: somebody asked to cancel it, the handler is told",
    ),
    (
        ev.JobRescued(**JOB, status=JobStatus.READY, leased_by="host-2"),
        "WARNING",
        "job 17 document.embed rescued: host-2 let its lease pass at attempt 2; now ready",
    ),
    (
        ev.JobRescued(**JOB, status=JobStatus.DEAD, leased_by=None),
        "ERROR",
        "job 17 document.embed rescued: its runner let its lease pass at attempt 2; now dead",
    ),
    (
        ev.RowRefused(runner_id="r", job_id=17, verb=Verb.CLAIM, fault="DatabaseError, SQLSTATE JQ001"),
        "WARNING",
        "job 17: the database refuses its claim (DatabaseError, SQLSTATE JQ001), other jobs go on",
    ),
    (
        ev.UnknownKinds(
            runner_id="r", kinds={"b": 3, "emebd": 1}, nearest={"emebd": ("embed", "embeds"), "b": ()}
        ),
        "WARNING",
        "due jobs without a handler here, left alone: 3 of b, 1 of emebd (did you mean embed or embeds?)",
    ),
    (
        ev.UnknownKindsPostponed(
            runner_id="r",
            queues={"default": {"b": 99_000, "c": 1}, "mail": {"b": 7}},
            until=datetime(2024, 2, 29, 12, 30, 1, 999, UTC),
        ),
        "WARNING",
        (
            "due jobs without a handler here stood in the way of claims: 99000 b in 'default', 1 c in 'default', 7 b in "
            "'mail' are due later, the last of them at 2024-02-29 12:30:01 UTC; is a handler missing, or is this old code?"
        ),
    ),
    (
        ev.UnservedQueues(
            runner_id="r", queues={"default": {"document.embed": 1}, "mail": {"a": 2, "b": 1000}}
        ),
        "WARNING",
        (
            "due jobs of kinds handled here wait in queues that this runner does not serve: 1 document.embed in "
            "'default', 2 a in 'mail', 1000 b in 'mail'; add --queues default:10,mail:10"
        ),
    ),
    (
        ev.PolicyFault(**JOB, fault="returned -1, expected a timedelta or None", delay=20 * SECOND),
        "ERROR",
        "job 17 document.embed: retry policy returned -1, expected a timedelta or None; the default policy's delay: 20s",
    ),
    (
        ev.NewerPayload(**JOB, payload_version=4, newest=3, retry_in=60 * SECOND),
        "WARNING",
        (
            "job 17 document.embed: its payload has version 4, and the handler here takes up to 3: put back for 1m, for a "
            "runner with newer code"
        ),
    ),
    (
        ev.WakeUpFailed(runner_id="r", cause="unheard"),
        "WARNING",
        (
            "what is notified in the database does not get here, so commits do not wake this runner and it polls: most often "
            "a transaction pooler is in between; give a direct address by --listen-url, or --no-listen"
        ),
    ),
    (
        ev.WakeUpFailed(runner_id="r", cause="refused", fault="InsufficientPrivilege, SQLSTATE 42501"),
        "WARNING",
        (
            "the database does not let this runner say that it waits for jobs (InsufficientPrivilege, SQLSTATE 42501), so "
            "it polls: it needs SELECT, INSERT, UPDATE and DELETE on jobqueue_idle"
        ),
    ),
    (
        ev.LoopFailed(runner_id="r", loop="dispatcher", error=ERROR, failures=1, retry_in=SECOND),
        "ERROR",
        "the dispatcher loop fails, it goes on trying: ValueError: boom",
    ),
    (
        ev.LoopFailed(runner_id="r", loop="dispatcher", error=ERROR, failures=9, retry_in=SECOND),
        "ERROR",
        "the dispatcher loop fails (9 times now), it goes on trying: ValueError: boom",
    ),
    (
        ev.LoopFailed(runner_id="r", loop="dispatcher", error=ERROR, failures=1, retry_in=None),
        "CRITICAL",
        "the dispatcher loop ended for good: ValueError: boom",
    ),
    (
        ev.LoopRecovered(runner_id="r", loop="dispatcher", failures=9, after=7 * SECOND),
        "INFO",
        "the dispatcher loop works again after 7s and 9 failures",
    ),
]


def logged(event: ev.Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """The one record that an event makes."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger.name):
        log_event(event)
    (record,) = caplog.records
    return record


@pytest.mark.parametrize(("event", "level", "message"), LINES, ids=lambda value: type(value).__name__)
def test_each_event_is_one_line(
    event: ev.Event, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The words and the level that an operator reads and sets alarms on."""
    record = logged(event, caplog)
    assert (record.levelname, record.getMessage()) == (level, message)


def test_every_event_has_a_line() -> None:
    """A new event can't be forgotten here."""
    assert {type(event) for event, _, _ in LINES} == set(get_args(ev.Event))


@pytest.mark.parametrize(("event", "level", "message"), LINES, ids=lambda value: type(value).__name__)
def test_extra_has_every_field_under_its_own_name(
    event: ev.Event, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The same words in the log as in events and columns; durations in seconds, saying so."""
    record = logged(event, caplog)
    assert record.event == type(event).__name__  # type: ignore[attr-defined]
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, timedelta):
            assert getattr(record, f"{field.name}_seconds") == value.total_seconds()
        elif value is not None:
            assert getattr(record, field.name) == value


@pytest.mark.parametrize(("event", "level", "message"), LINES, ids=lambda value: type(value).__name__)
def test_the_level_of_the_logger_decides(
    event: ev.Event, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An event is logged at its own level and not at the next: what is skipped before its words are made is right."""
    lowest = logging.getLevelNamesMapping()[level]
    with caplog.at_level(lowest, logger.name):
        log_event(event)
    assert [record.levelno for record in caplog.records] == [lowest]
    with caplog.at_level(lowest + 1, logger.name):
        log_event(event)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("event", "level", "message"), LINES, ids=lambda value: type(value).__name__)
def test_what_is_logged_is_heard(
    event: ev.Event, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No event that would be logged is left unmade; those that every job brings are, where they are not logged."""
    settled_well = isinstance(event, ev.JobSettled) and event.verb is Verb.COMPLETE and event.fault is None
    verb = Verb.COMPLETE if settled_well else None
    lowest = logging.getLevelNamesMapping()[level]
    with caplog.at_level(lowest, logger.name):
        assert log_event.hears(type(event), verb)
    with caplog.at_level(logging.WARNING, logger.name):
        routine = settled_well or isinstance(event, ev.JobStarted | ev.JobsClaimed)
        assert log_event.hears(type(event), verb) is not routine
