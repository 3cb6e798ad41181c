"""perform() says in Python what the statements decide: the two are held together here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func

from sa_jobqueue import Discard, JobContext, Registry, Retry, Settle, Snooze, enqueue, fixed, never
from sa_jobqueue.models import jobs as table
from sa_jobqueue.testing import drain, perform
from tests.testing.conftest import Place, told

MINUTE = timedelta(minutes=1)
OUTCOMES: dict[str, Any] = {
    "none": None,
    "result": {"a": 1},
    "retry": Retry(),
    "later": Retry(after=MINUTE, reason="busy"),
    "snooze": Snooze(MINUTE),
    "discard": Discard("why"),
    "class": Retry,
}
ERRORS: dict[str, BaseException] = {
    "fails": ValueError("no"),
    "permanent": KeyError("gone"),
    "settle": Settle(Retry(after=MINUTE)),
    "exit": SystemExit(3),
}
PAYLOADS: list[Any] = [
    *(None, {}, [], False, "", 0),
    {"n": 10**30, "f": [1.0, 1e23, 5e-324], "text": "\U0001f600 \"\\ '%s{}", "": {"": [None]}},
]


@pytest.mark.parametrize("cancel", [False, True])
def test_a_run_is_judged_alike(sync_place: Place, cancel: bool) -> None:
    """Every outcome, at the first and at the last attempt, with and without a request to cancel."""
    jobs = Registry()

    def act(ctx: JobContext, name: str) -> Any:
        if cancel and ctx.runner_id == "drain":
            asked = table.update().where(table.c.id == ctx.id).values(cancel_requested_at=func.now())
            sync_place.connection.execute(asked)
        if name in ERRORS:
            raise ERRORS[name]
        return OUTCOMES[name]

    policies = {"tries": fixed(MINUTE), "gives up": never()}
    for kind, retry in policies.items():
        jobs.handler(kind, retry=retry, permanent=[LookupError])(act)
    cases = [(kind, name, most) for kind in policies for name in (*OUTCOMES, *ERRORS) for most in (1, 2)]

    async def scenario(place: Place) -> None:
        for kind, name, most in cases:
            place.session.add(enqueue(kind, {"name": name}, max_attempts=most))
        runs = drain(place.session, jobs, raise_errors=False).runs
        for (kind, name, most), run in zip(cases, runs, strict=True):
            alone = perform(
                jobs,
                kind,
                {"name": name},
                max_attempts=most,
                id=run.id,
                cancel_requested=cancel,
                raise_errors=False,
            )
            for field in ("id", "kind", "attempt", "verb", "status", "delay", "reason", "returned", "fault"):
                assert getattr(alone, field) == getattr(run, field), (kind, name, most, field)
            assert type(alone.exception) is type(run.exception)
            assert (alone.error is None) == (run.error is None)

    sync_place.run(scenario)


def test_a_payload_arrives_alike(place: Place) -> None:
    """As the database gives it back, on every driver."""
    jobs = Registry()
    seen: list[Any] = []

    @jobs.handler("k")
    def k(ctx: JobContext) -> None:
        seen.append(ctx.payload)

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("k", payload) for payload in PAYLOADS])
        await told(drain(place.session, jobs))

    place.run(scenario)
    drained = list(seen)
    seen.clear()
    for payload in PAYLOADS:
        perform(jobs, "k", payload)
    assert seen == drained == PAYLOADS
    assert [type(one) for one in seen] == [type(one) for one in drained]
