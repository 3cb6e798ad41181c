"""perform(): one run of a handler without a database, judged as a runner judges it."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sa_jobqueue import (
    Discard,
    JobContext,
    PayloadError,
    Registry,
    Retry,
    Settle,
    Snooze,
    exponential,
    fixed,
    never,
    ref,
)
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.testing import Performed, perform, perform_async
from tests.entry.application import Document

HOUR = timedelta(hours=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
jobs = Registry()


@jobs.handler("outcome", max_attempts=3, retry=fixed(HOUR), permanent=[LookupError])
def outcome(ctx: JobContext, value: Any = None) -> Any:
    """Returns what it is told to, or raises it."""
    answers = {
        "retry": Retry(),
        "reason": Retry(after=timedelta(minutes=1), reason="busy"),
        "snooze": Snooze(HOUR),
        "discard": Discard("why"),
        "class": Snooze,
    }
    errors = {
        "fails": ValueError("no"),
        "permanent": KeyError("gone"),
        "settle": Settle(Discard("deep inside")),
        "exit": SystemExit(3),
    }
    if value in errors:
        raise errors[value]
    return answers.get(value, value)


def test_a_run_is_told_as_a_value() -> None:
    """A handler that returns is done; what it returned is there to be looked at."""
    assert perform(outcome.call(value="fine")) == Performed(
        id=1, kind="outcome", attempt=1, verb="complete", status="done", returned="fine"
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "attempt", "expected"),
    [
        ("retry", 1, ("retry", "ready", HOUR, None)),
        ("reason", 1, ("retry", "ready", timedelta(minutes=1), None)),
        ("retry", 3, ("retry", "dead", None, "exhausted")),
        ("snooze", 3, ("snooze", "ready", HOUR, None)),
        ("discard", 1, ("discard", "dead", None, "discarded: why")),
        ("settle", 1, ("discard", "dead", None, "discarded: deep inside")),
        ("fails", 1, ("retry", "ready", HOUR, None)),
        ("fails", 3, ("retry", "dead", None, "exhausted")),
        ("permanent", 1, ("discard", "dead", None, "discarded: no retry after KeyError")),
        ("exit", 1, ("retry", "ready", HOUR, None)),
        ("class", 1, ("retry", "ready", HOUR, None)),
    ],
)
def test_outcomes_and_failures_are_judged_by_the_handlers_policy(
    value: str, attempt: int, expected: Any
) -> None:
    """Verb, status, delay and reason are those that a runner would write."""
    run = perform(outcome.call(value=value), attempt=attempt, raise_errors=False)
    assert (run.verb, run.status, run.delay, run.reason) == expected
    assert (run.exception is None) == (value in {"retry", "reason", "snooze", "discard", "settle"})


def test_a_failure_is_raised_unless_it_is_asked_for() -> None:
    """Most tests expect none: the handler's own traceback says more than a record."""
    for value, error in (("fails", ValueError), ("exit", SystemExit), ("class", TypeError)):
        with pytest.raises(error):
            perform(outcome.call(value=value))
    run = perform(outcome.call(value="fails"), raise_errors=False)
    assert isinstance(run.exception, ValueError)
    assert "ValueError: no" in str(run.error)


def test_a_result_that_can_not_be_kept_is_a_failure() -> None:
    """The test of a handler with keep_result learns of it without a runner; what fits is in `returned`."""
    registry = Registry()

    @registry.handler("count", keep_result=True)
    def count(answer: str) -> Any:
        return {"fits": [1], "odd": {1, 2}}[answer]

    assert perform(count.call(answer="fits")).returned == [1]
    with pytest.raises(
        TypeError, match=r"result of 'count' can't be kept .*\$: set is no JSON type: pass sorted"
    ):
        perform(count.call(answer="odd"))
    failed = perform(count.call(answer="odd"), raise_errors=False)
    assert (failed.verb, failed.error is not None and "no JSON type" in failed.error) == ("retry", True)


def test_the_payload_is_what_a_runner_would_hand_over() -> None:
    """By way of JSON: a copy, checked as enqueue() checks it; what doesn't fit the handler is a PayloadError."""
    seen: list[Any] = []
    registry = Registry()

    @registry.handler("k", queue="ai", aliases=["old"])
    def k(items: list[Any]) -> None:
        seen.append(items)

    items = [1, {"a": None}]
    perform(k.call(items=items))
    assert seen[0] == items
    assert seen[0] is not items
    perform(registry, "old", {"items": []})
    assert seen[1] == []
    for refused in (NOON, (1, 2), "\0"):
        with pytest.raises((TypeError, ValueError), match=r"\$\.items"):
            perform(k.call(items=refused))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"still has a ref\(\)"):
        perform(k.call(items=[ref(Document(title="a"))]))
    with pytest.raises(PayloadError, match="lacks 'items'"):
        perform(registry, "k")


def test_the_context_is_that_of_a_first_attempt_or_what_the_test_says() -> None:
    """Every attribute of the context can be chosen that a handler may decide by."""
    contexts: list[JobContext] = []
    registry = Registry()

    @registry.handler("k", queue="ai", max_attempts=8)
    def k(ctx: JobContext) -> None:
        contexts.append(ctx)

    perform(k.call())
    perform(
        registry,
        "k",
        [1],
        attempt=2,
        max_attempts=2,
        queue="slow",
        id=77,
        idempotency_key="x",
        run_at=NOON,
        lost=True,
        cancel_requested=True,
    )
    first, second = contexts
    assert (first.id, first.kind, first.queue, first.payload, first.attempt, first.max_attempts) == (
        *(1, "k", "ai", {}),
        *(1, 8),
    )
    assert (first.idempotency_key, first.lost, first.cancel_requested) == (None, False, False)
    assert first.run_at == first.created_at
    assert (second.id, second.queue, second.payload, second.attempt, second.max_attempts) == (
        *(77, "slow", [1]),
        *(2, 2),
    )
    assert (second.idempotency_key, second.run_at, second.lost, second.cancel_requested) == (
        *("x", NOON),
        *(True, True),
    )


def test_a_requested_cancellation_wins_over_all_but_done() -> None:
    """As in the statements that settle."""
    for value, status in (
        ("retry", "cancelled"),
        ("snooze", "cancelled"),
        ("discard", "cancelled"),
        (1, "done"),
    ):
        run = perform(outcome.call(value=value), cancel_requested=True)
        assert (run.status, run.reason) == (status, "cancelled" if status == "cancelled" else None)


def test_a_faulty_policy_is_told() -> None:
    """The default stands in for it, as in a runner, and the record says so."""

    def soon(attempt: int, error: BaseException) -> Any:
        return "soon"

    @Registry().handler("k", retry=soon)
    def k() -> None:
        raise ValueError

    run = perform(k.call(), raise_errors=False)
    assert run.status == "ready"
    assert "'soon'" in str(run.fault)


def test_async_handlers_run_with_and_without_a_loop() -> None:
    """perform() makes a loop; in one it says what to write, and perform_async() takes that one."""
    loops = []
    registry = Registry()

    @registry.handler("k", retry=never())
    async def k(fails: bool = False) -> str:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no")
        return "answer"

    assert perform(k.call()).returned == "answer"

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"'k' has an async handler.*`await perform_async\(\.\.\.\)`"):
            perform(k.call())
        assert (await perform_async(k.call())).returned == "answer"
        assert (await perform_async(registry, "k", {"fails": True}, raise_errors=False)).status == "dead"
        with pytest.raises(ValueError, match="no"):
            await perform_async(k.call(fails=True))
        assert (await perform_async(outcome.call(value=1))).returned == 1
        assert loops[1:] == [asyncio.get_running_loop()] * 3

    asyncio.run(main())


def test_wrong_arguments_are_named() -> None:
    """Before the handler is called."""
    bare = HandlerCall("k", {}, "default", 5, None, 1)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        (
            (outcome,),
            {},
            TypeError,
            r"expected handler.call\(\.\.\.\), .*got Handler: write perform\(outcome\.call",
        ),
        ((bare,), {}, TypeError, "got HandlerCall"),
        ((jobs,), {}, TypeError, "got Registry"),
        ((jobs, "outcom"), {}, LookupError, "no handler of 'outcom' in the registry, did you mean 'outcome'"),
        ((outcome.call(),), {"attempt": 4}, ValueError, r"attempt: expected 1 to 3 \(max_attempts\), got 4"),
        ((outcome.call(),), {"attempts": 1}, TypeError, "no such option: attempts"),
        ((outcome.call(),), {"queue": ""}, ValueError, "queue"),
        ((outcome.call(),), {"run_at": datetime(2031, 1, 1)}, ValueError, "naive"),  # noqa: DTZ001
    ]
    for arguments, options, error, says in wrong:
        with pytest.raises(error, match=says):
            perform(*arguments, **options)


def test_a_call_can_be_pickled_without_its_handler() -> None:
    """What a test performs is a function of this process; the call itself goes anywhere."""

    @jobs.handler("local", retry=exponential())
    def local(value: int) -> None: ...

    call = local.call(value=1)
    assert call.handler is local
    copy = pickle.loads(pickle.dumps(call))
    assert copy == call
    assert copy.handler is None
