"""What a handler returns or raises, and the row that comes of it, through a whole runner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.events import JobSettled, JobStarted, LeaseLost, OutcomeDropped, PolicyFault, SettleDelayed
from sa_jobqueue.outcomes import Discard, Retry, Settle, Snooze
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import fixed, never
from sa_jobqueue.runner.verdict import SHUTDOWN_ERROR
from tests.support.runners import add, drain, row, running
from tests.support.waiting import wait_until

NOW = fixed(timedelta(0))


def _run(engine: Engine, url: str, handler: Any, *, max_attempts: int = 2, **registration: Any) -> Any:
    """The row after everything that was due has run."""
    jobs = Registry()
    jobs.handler("work", **registration)(handler)
    with engine.begin() as connection:
        job = add(connection, "work", '{"n": 1}', max_attempts=max_attempts)
    drain(jobs, url)
    return row(engine, job)


def test_a_return_completes(engine: Engine, database_url: str) -> None:
    """Returning, whatever the value, makes the job done."""
    seen = []
    done = _run(engine, database_url, lambda n: seen.append(n))
    assert (done.status, done.attempts, seen) == ("done", 1, [1])
    assert done.finished_at is not None
    assert (done.lease_token, done.lease_until) == (None, None)


def test_an_error_is_retried_until_the_attempts_are_used_up(engine: Engine, database_url: str) -> None:
    """Every failure counts and is kept; the last one makes the job dead."""

    def fail(ctx: JobContext, n: int) -> None:
        raise ValueError(f"attempt {ctx.attempt} of {ctx.max_attempts}")

    dead = _run(engine, database_url, fail, max_attempts=3, retry=NOW)
    assert (dead.status, dead.reason, dead.attempts, dead.returned) == ("dead", "exhausted", 3, 0)
    assert [error["attempt"] for error in dead.errors] == [1, 2, 3]
    assert "ValueError: attempt 3 of 3" in dead.last_error


def test_a_retry_waits_for_its_policy(engine: Engine, database_url: str) -> None:
    """A failed job is ready again when its backoff is over, by the database's clock."""

    def fail(n: int) -> None:
        raise ValueError

    ready = _run(engine, database_url, fail, retry=fixed(timedelta(hours=1)))
    assert ready.status == "ready"
    assert timedelta(minutes=59) < ready.run_at - ready.updated_at <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "counted"),
    [
        (Retry(after=timedelta(hours=1), reason="not yet"), "ready", None, 1),
        (Snooze(timedelta(hours=1)), "ready", None, 0),
        (Discard("nobody wants it"), "dead", "discarded: nobody wants it", 1),
    ],
)
@pytest.mark.parametrize("way", ["returned", "raised"])
def test_outcomes_are_values(
    engine: Engine, database_url: str, outcome: Any, status: str, reason: str | None, counted: int, way: str
) -> None:
    """Retry, Snooze and Discard do the same whether they are returned or raised."""

    def handler(n: int) -> Any:
        if way == "raised":
            raise Settle(outcome)
        return outcome

    settled = _run(engine, database_url, handler)
    assert (settled.status, settled.reason) == (status, reason)
    assert settled.attempts - settled.returned == counted


def test_permanent_errors_and_policies_that_give_up_go_straight_to_dead(
    engine: Engine, database_url: str
) -> None:
    """No second attempt for an error that can't get better, nor where the policy is never()."""

    def fail(n: int) -> None:
        raise LookupError("no such document")

    for registration in ({"permanent": (LookupError,)}, {"retry": never()}):
        dead = _run(engine, database_url, fail, max_attempts=9, **registration)
        assert (dead.status, dead.attempts) == ("dead", 1)
        assert "LookupError" in dead.reason
        assert "no such document" in dead.last_error


def test_a_broken_policy_is_reported_and_replaced(engine: Engine, database_url: str) -> None:
    """The failure is recorded with the default backoff, whatever the policy does."""
    jobs = Registry()

    def broken(_attempt: int, _error: BaseException) -> Any:
        return float("nan")

    @jobs.handler("work", retry=broken)
    def fail(n: int) -> None:
        raise ValueError("the job's own error")

    with engine.begin() as connection:
        job = add(connection, "work", '{"n": 1}')
    recorder = drain(jobs, database_url)
    assert [fault.job_id for fault in recorder.of(PolicyFault)] == [job]
    ready = row(engine, job)
    assert ready.status == "ready"
    assert timedelta(0) < ready.run_at - ready.updated_at <= timedelta(days=1)
    assert "the job's own error" in ready.last_error


def test_a_payload_that_does_not_fit_is_a_failure_like_any_other(engine: Engine, database_url: str) -> None:
    """Old and new code may meet: the job is retried, and its error names the field."""

    def handler(other: int) -> None: ...

    ready = _run(engine, database_url, handler, retry=fixed(timedelta(hours=1)))
    assert ready.status == "ready"
    assert "PayloadError" in ready.last_error
    assert "'n'" in ready.last_error or "'other'" in ready.last_error


def test_a_payload_that_python_cannot_read_spoils_no_claim(engine: Engine, database_url: str) -> None:
    """What other SQL stored fails its own job alone, as an attempt like any other."""
    jobs = Registry()
    ran = []
    jobs.handler("work", retry=NOW)(lambda n: ran.append(n))
    with engine.begin() as connection:
        unreadable = add(connection, "work", '{"n": %s}' % ("9" * 5000), max_attempts=2)
        neighbours = [add(connection, "work", f'{{"n": {number}}}') for number in range(3)]
    drain(jobs, database_url)
    dead = row(engine, unreadable)
    assert (dead.status, dead.attempts, dead.returned) == ("dead", 2, 0)
    assert "PayloadError" in dead.last_error
    assert {(row(engine, job).status, row(engine, job).attempts) for job in neighbours} == {("done", 1)}
    assert sorted(ran) == [0, 1, 2]


def test_an_expired_job_is_cancelled_without_a_run(engine: Engine, database_url: str) -> None:
    """Past expires_at nobody wants the result: the handler is not called."""
    jobs = Registry()
    ran = []
    jobs.handler("work")(lambda: ran.append(1))
    with engine.begin() as connection:
        job = add(connection, "work", expires_at="2020-01-01T00:00:00Z")
    drain(jobs, database_url)
    cancelled = row(engine, job)
    assert (cancelled.status, cancelled.reason, ran) == ("cancelled", "expired", [])


def test_a_handler_whose_job_was_taken_over_is_told_and_its_result_thrown_away(
    engine: Engine, database_url: str
) -> None:
    """The next renewal notices, the handler can see it, and nothing it returns reaches the new owner's row."""
    jobs = Registry()
    told = []

    @jobs.handler("work")
    def loop(ctx: JobContext) -> None:
        wait_until(lambda: ctx.lost, what="the handler to see that its lease is lost")
        with pytest.raises(LeaseLostError):
            ctx.raise_if_lost()
        told.append(ctx.id)

    with engine.begin() as connection:
        job = add(connection, "work")
    # No rescue here: the test is the other owner.
    with running(
        jobs, database_url, lease=timedelta(seconds=1), rescue_interval=timedelta(hours=1)
    ) as recorder:
        recorder.wait_for(JobStarted)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE jobqueue_jobs SET lease_token = gen_random_uuid(), leased_by = 'the other',"
                    " lease_until = now() + interval '1 hour', attempts = attempts + 1"
                )
            )
        taken = row(engine, job)
        assert [lost.job_id for lost in recorder.wait_for(LeaseLost)] == [job]
        recorder.wait_for(OutcomeDropped)
    assert told == [job]
    assert row(engine, job) == taken
    assert recorder.of(JobSettled) == []


def test_an_outcome_that_the_database_refuses_is_told(engine: Engine, database_url: str) -> None:
    """An application's trigger may refuse a row: its neighbours are done, and an event names what refused it."""
    jobs = Registry()
    jobs.handler("work")(lambda: None)
    with engine.begin() as connection:
        refused, *others = [add(connection, "work") for _ in range(3)]
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" IF NEW.id = {refused} THEN RAISE 'not this one' USING ERRCODE = 'JQ001'; END IF; RETURN NEW; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER refuse BEFORE UPDATE OF status ON jobqueue_jobs FOR EACH ROW"
                " WHEN (NEW.status = 'done') EXECUTE FUNCTION refuse()"
            )
        )
    with running(jobs, database_url) as recorder:
        recorder.wait_for(JobSettled, count=2)
        (delayed, *_) = recorder.wait_for(SettleDelayed)
        with engine.begin() as connection:
            connection.execute(text("DROP TRIGGER refuse ON jobqueue_jobs"))
        recorder.wait_for(JobSettled, count=3)
    assert delayed.job_id == refused
    assert "JQ001" in delayed.fault
    assert {row(engine, job).status for job in (refused, *others)} == {"done"}


def test_what_a_handler_says_is_never_taken_for_the_end_of_the_runner(
    engine: Engine, database_url: str
) -> None:
    """A clean run ends with 0, also when some handler's reason reads like the runner's own."""
    ready = _run(engine, database_url, lambda **_: Retry(after=timedelta(hours=1), reason=SHUTDOWN_ERROR))
    assert (ready.status, ready.last_error) == ("ready", SHUTDOWN_ERROR)
