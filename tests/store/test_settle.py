"""Every column of every outcome, and the bounds of what is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, Row, func

from sa_jobqueue.records import Landing, Settlement
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_running, keyed, read_job

HOUR = timedelta(hours=1)
LEASE = {"status", "lease_token", "lease_until", "leased_by", "settled_token", "updated_at"}


def settle(
    engine: Engine, store: Store, token: UUID, verb: Verb, **outcome: Any
) -> tuple[Row[Any], Row[Any]]:
    """One job through one verb: its row before and after. `columns` prepare the job."""
    job_id = add_running(engine, token, **outcome.pop("columns", {}))
    before = read_job(engine, job_id)
    (settled,) = store.settle([Settlement(job_id, token, verb, **outcome)])
    after = read_job(engine, job_id)
    assert (settled.id, settled.token, settled.landing) == (job_id, token, Landing.LANDED)
    assert settled.status == after.status
    assert (after.lease_token, after.lease_until, after.leased_by) == (None, None, None)
    assert after.settled_token == token
    assert after.updated_at > before.updated_at
    return before, after


def changed(before: Row[Any], after: Row[Any]) -> set[str]:
    return {name for name in before._fields if getattr(before, name) != getattr(after, name)} - LEASE


def test_complete(engine: Engine, store: Store, token: UUID) -> None:
    """A completed job is done, with its result, and keeps its counters and its key of scope `row`."""
    before, after = settle(
        engine, store, token, Verb.COMPLETE, result='{"n": 1}', columns=keyed("key", scope="row")
    )
    assert changed(before, after) == {"finished_at", "result"}
    assert (after.status, after.result, after.finished_at) == ("done", {"n": 1}, after.updated_at)


@pytest.mark.parametrize(
    ("verb", "status"),
    [(Verb.COMPLETE, "done"), (Verb.DISCARD, "dead"), (Verb.ABORT, "cancelled"), (Verb.RETRY, "dead")],
)
def test_a_finished_job_lets_its_key_go(
    engine: Engine, store: Store, token: UUID, verb: Verb, status: str
) -> None:
    """Scope `unfinished` frees the key in the statement that finishes the job; what the caller gave is kept."""
    _, after = settle(engine, store, token, verb, columns={**keyed("key"), "max_attempts": 1})
    assert (after.status, after.unique_key, after.idempotency_key) == (status, None, "key")


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.RELEASE])
def test_an_unfinished_job_keeps_its_key(engine: Engine, store: Store, token: UUID, verb: Verb) -> None:
    """A job that goes back to ready still guards its key."""
    _, after = settle(engine, store, token, verb, delay=MINUTE, columns=keyed("key"))
    assert (after.status, after.unique_key) == ("ready", "key")


def test_retry(engine: Engine, store: Store, token: UUID) -> None:
    """A failed job with attempts left is due again after the delay, and remembers the failure."""
    before, after = settle(
        engine, store, token, Verb.RETRY, delay=HOUR, error="boom", columns={"attempts": 4, "max_attempts": 5}
    )
    assert changed(before, after) == {"run_at", "last_error", "errors"}
    assert (after.status, after.run_at, after.last_error) == ("ready", after.updated_at + HOUR, "boom")
    assert after.errors == [{"attempt": 4, "at": utc(after.updated_at), "verb": "retry", "error": "boom"}]


def utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_time_of_an_error_does_not_follow_the_session(engine: Engine, store: Store, token: UUID) -> None:
    """The JSON of two servers in different time zones is the same: UTC, six digits, Z."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {engine.url.database} SET timezone TO 'Pacific/Auckland'")
    engine.dispose()
    _, after = settle(engine, store, token, Verb.RETRY, error="boom")
    assert str(after.updated_at.tzinfo) == "Pacific/Auckland"
    assert after.errors[0]["at"] == utc(after.updated_at)


def test_retry_without_an_attempt_left(engine: Engine, store: Store, token: UUID) -> None:
    """The last attempt ends in dead, due time as it was."""
    before, after = settle(
        engine,
        store,
        token,
        Verb.RETRY,
        delay=HOUR,
        error="boom",
        columns={"attempts": 7, "returned": 2, "max_attempts": 5},
    )
    assert changed(before, after) == {"reason", "finished_at", "last_error", "errors"}
    assert (after.status, after.reason, after.last_error) == ("dead", "exhausted", "boom")
    assert [entry["attempt"] for entry in after.errors] == [5]
    assert after.finished_at == after.updated_at


def test_attempts_given_back_do_not_count(engine: Engine, store: Store, token: UUID) -> None:
    """A job that began seven times and was given back three times has attempts left of five."""
    columns = {"attempts": 7, "returned": 3, "max_attempts": 5}
    _, after = settle(engine, store, token, Verb.RETRY, columns=columns)
    assert after.status == "ready"


def test_retry_without_delay_or_error(engine: Engine, store: Store, token: UUID) -> None:
    """Without a delay the job is due at once; without an error the last one stays and none is added."""
    columns = {"last_error": "earlier", "errors": [{"error": "earlier"}]}
    before, after = settle(engine, store, token, Verb.RETRY, columns=columns)
    assert changed(before, after) == {"run_at"}
    assert after.run_at == after.updated_at


def test_snooze(engine: Engine, store: Store, token: UUID) -> None:
    """A snoozed job comes back later with its attempt given back, even at its last attempt, as often as it likes."""
    columns = {"attempts": 5, "returned": 0, "max_attempts": 5}
    before, after = settle(engine, store, token, Verb.SNOOZE, delay=HOUR, columns=columns)
    assert changed(before, after) == {"run_at", "returned"}
    assert (after.status, after.run_at, after.returned) == ("ready", after.updated_at + HOUR, 1)


def test_release(engine: Engine, store: Store, token: UUID) -> None:
    """A job that never began goes back to its old place, its attempt given back."""
    before, after = settle(engine, store, token, Verb.RELEASE, columns={"attempts": 5, "max_attempts": 5})
    assert changed(before, after) == {"returned"}
    assert (after.status, after.returned) == ("ready", 1)


def test_discard(engine: Engine, store: Store, token: UUID) -> None:
    """A discarded job is dead for the reason that the handler gave."""
    before, after = settle(engine, store, token, Verb.DISCARD, reason="no such document", error="404")
    assert changed(before, after) == {"reason", "finished_at", "last_error", "errors"}
    assert (after.status, after.reason, after.last_error) == ("dead", "no such document", "404")
    assert [(entry["verb"], entry["error"]) for entry in after.errors] == [("discard", "404")]
    _, after = settle(engine, store, token, Verb.DISCARD)
    assert (after.status, after.reason, after.last_error, after.errors) == ("dead", "discarded", None, [])


def test_abort(engine: Engine, store: Store, token: UUID) -> None:
    """An aborted job is cancelled for the reason given: a request, or past its expiry."""
    before, after = settle(engine, store, token, Verb.ABORT, reason="expired")
    assert changed(before, after) == {"reason", "finished_at"}
    assert (after.status, after.reason) == ("cancelled", "expired")
    _, after = settle(engine, store, token, Verb.ABORT)
    assert after.reason == "cancelled"


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.DISCARD, Verb.RELEASE, Verb.ABORT])
def test_a_request_for_cancellation_wins(engine: Engine, store: Store, token: UUID, verb: Verb) -> None:
    """Whatever a handler ends with but success, a job whose cancellation was asked for ends cancelled."""
    columns = {"cancel_requested_at": func.now(), "attempts": 5, "last_error": "earlier", **keyed("key")}
    before, after = settle(engine, store, token, verb, delay=HOUR, columns=columns)
    assert (after.status, after.reason, after.last_error) == ("cancelled", "cancelled", "earlier")
    assert (after.finished_at, after.run_at) == (after.updated_at, before.run_at)
    assert (after.unique_key, after.cancel_requested_at) == (None, before.cancel_requested_at)


def test_completion_wins_over_a_request(engine: Engine, store: Store, token: UUID) -> None:
    """A job that was finished before the request was read is done."""
    _, after = settle(engine, store, token, Verb.COMPLETE, columns={"cancel_requested_at": func.now()})
    assert after.status == "done"


def test_a_failure_before_a_cancellation_is_kept(engine: Engine, store: Store, token: UUID) -> None:
    """The error of the run that was cancelled is not lost."""
    _, after = settle(
        engine, store, token, Verb.RETRY, error="boom", columns={"cancel_requested_at": func.now()}
    )
    assert (after.status, after.last_error, len(after.errors)) == ("cancelled", "boom", 1)


def test_the_last_ten_errors_are_kept(engine: Engine, store: Store, token: UUID) -> None:
    """However often a job fails, its row stays small: ten errors, the newest last."""
    columns = {
        "attempts": 200,
        "max_attempts": 500,
        "errors": [{"attempt": number, "error": "x"} for number in range(190, 200)],
    }
    _, after = settle(engine, store, token, Verb.RETRY, error="new", columns=columns)
    assert [entry["attempt"] for entry in after.errors] == list(range(191, 201))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * 4096, 4096),
        ("a" * 5_000_000, 4096),
        ("\u00e9" * 2048, 2048),
        ("\u00e9" * 5_000_000, 1024),
        ("\U0001f600" * 1024, 1024),
        ("\U0001f600" * 2000, 1024),
    ],
    ids=["ascii fits", "ascii", "two bytes fit", "two bytes", "four bytes fit", "four bytes"],
)
def test_texts_are_cut_to_4_kib(engine: Engine, store: Store, token: UUID, text: str, kept: int) -> None:
    """An error or a reason is cut on a character boundary, never beyond 4 KiB."""
    _, after = settle(engine, store, token, Verb.DISCARD, error=text, reason=text)
    expected = text[:kept]
    assert len(expected.encode()) <= 4096
    assert (after.last_error, after.reason, after.errors[0]["error"]) == (expected, expected, expected)


def test_a_result_too_large_is_replaced(engine: Engine, store: Store, token: UUID) -> None:
    """A completion is never refused for the size of its result: beyond 64 KiB a marker stands in its place."""
    fits = json.dumps("x" * (64 * 1024 - 2))
    assert settle(engine, store, token, Verb.COMPLETE, result=fits)[1].result == json.loads(fits)
    _, after = settle(engine, store, token, Verb.COMPLETE, result=json.dumps("x" * 64 * 1024))
    assert after.status == "done"
    assert after.result == {"dropped": "result too large", "bytes": 64 * 1024 + 2}


def test_a_failing_row_stays_small(engine: Engine, store: Store, token: UUID) -> None:
    """The whole row of a job that failed with the longest texts stays below 64 KiB."""
    columns = {
        "attempts": 200,
        "max_attempts": 500,
        "errors": [{"attempt": number, "error": "x" * 4096} for number in range(190, 200)],
    }
    _, after = settle(engine, store, token, Verb.RETRY, error="x" * 10_000, columns=columns)
    assert len(json.dumps(after.errors)) + len(after.last_error) < 64 * 1024


def test_a_mixed_batch_answers_in_order(engine: Engine, store: Store, token: UUID) -> None:
    """One call may carry every verb: each job gets its own outcome, the answers come in the order given."""
    wanted = {
        Verb.RETRY: JobStatus.READY,
        Verb.COMPLETE: JobStatus.DONE,
        Verb.DISCARD: JobStatus.DEAD,
        Verb.ABORT: JobStatus.CANCELLED,
        Verb.SNOOZE: JobStatus.READY,
        Verb.RELEASE: JobStatus.READY,
    }
    batch = [Settlement(add_running(engine, token), token, verb) for _ in range(2) for verb in wanted]
    settled = store.settle(batch)
    assert [(answer.id, answer.status) for answer in settled] == [
        (settlement.id, wanted[settlement.verb]) for settlement in batch
    ]
    assert store.settle([]) == []


def test_a_verb_that_settles_nothing_is_refused(engine: Engine, store: Store, token: UUID) -> None:
    """Only the six verbs that let a job go are settlements; the error names them."""
    job_id = add_running(engine, token)
    with pytest.raises(
        ValueError, match=r"renew is no way .* complete, retry, snooze, discard, release, abort"
    ):
        store.settle([Settlement(job_id, token, Verb.RENEW)])
