"""perform() and drain() of payloads that older or newer code has made, and of what handlers say of all their jobs."""

from __future__ import annotations

from typing import Any

import pytest

from sa_jobqueue import Job, JobContext, PayloadError, Registry, enqueue
from sa_jobqueue.testing import Drained, DrainError, drain, perform
from tests.testing.conftest import Place, told

jobs = Registry()


def named(payload: Any) -> Any:
    payload["document_id"] = payload.pop("id")
    return payload


@jobs.handler(
    "document.embed",
    payload_version=3,
    upcasters={2: named},
    max_payload_bytes=40,
    unique_by=["document_id"],
    key_scope="unfinished",
)
def embed(ctx: JobContext, document_id: int) -> tuple[Any, str | None]:
    """Tells what it was given."""
    return ctx.payload, ctx.idempotency_key


def test_perform_brings_a_payload_up() -> None:
    """By name, as a job that waits since an older release; one of today needs no version."""
    for payload, options in (({"id": 7}, {"payload_version": 2}), ({"document_id": 7}, {})):
        run = perform(jobs, "document.embed", payload, **options)  # type: ignore[arg-type]
        assert run.returned == ({"document_id": 7}, None)
    assert perform(embed.call(document_id=7)).returned[0] == {"document_id": 7}


def test_perform_judges_what_can_not_be_brought_up() -> None:
    """As a runner does; newer than its handler no runner here would run it."""
    with pytest.raises(PayloadError, match="version 1, and the handler takes no older one than 2"):
        perform(jobs, "document.embed", {"id": 7}, payload_version=1)
    run = perform(jobs, "document.embed", {}, payload_version=2, raise_errors=False)
    assert (run.verb, run.status) == ("retry", "ready")
    assert "upcaster of payload version 2" in (run.error or "")
    with pytest.raises(ValueError, match=r"payload_version: .* takes up to 3, got 4"):
        perform(jobs, "document.embed", {}, payload_version=4, raise_errors=False)
    with pytest.raises(TypeError, match="payload_version is for a payload by name"):
        perform(embed.call(document_id=7), payload_version=2)


def test_perform_has_keys_and_limits_of_the_handler() -> None:
    """A call brings both, a name the limit alone, for nobody made a key of such a payload."""
    made = perform(embed.call(document_id=7)).returned[1]
    assert made == enqueue(embed.call(document_id=7)).idempotency_key
    assert perform(embed.call(document_id=7), idempotency_key="mine").returned[1] == "mine"
    assert perform(jobs, "document.embed", {"document_id": 7}).returned[1] is None
    for wrong in ((embed.call(document_id=10**40),), (jobs, "document.embed", {"document_id": 10**40})):
        with pytest.raises(
            ValueError, match=r"40 is the limit.*max_payload_bytes of handler\('document.embed'\)"
        ):
            perform(*wrong)  # type: ignore[call-overload]


def test_a_drain_brings_payloads_up(place: Place) -> None:
    """The job keeps the payload that it was enqueued with."""

    async def scenario(place: Place) -> None:
        job = enqueue("document.embed", {"id": 7}, payload_version=2)
        place.session.add(job)
        drained = await told(drain(place.session, jobs))
        assert (drained, drained.runs[0].returned) == (Drained(done=1), ({"document_id": 7}, None))
        row = await told(place.session.get(Job, job.enqueued and job.enqueued.id, populate_existing=True))
        await told(place.session.refresh(row, ["payload"]))
        assert (row.payload, row.payload_version) == ({"id": 7}, 2)

    place.run(scenario)


@pytest.mark.parametrize("raise_errors", [True, False])
def test_a_drain_stops_at_a_newer_payload(place: Place, raise_errors: bool) -> None:
    """Whatever is told of failures: it is none, and would wait for ever. The start doesn't count."""

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("document.embed", {"document_id": 1}, priority=0, payload_version=3))
        place.session.add(job := enqueue("document.embed", {"document_id": 7}, payload_version=4))
        with pytest.raises(
            DrainError, match=r"\(document\.embed\): .* version 4, .* up to 3: a runner"
        ) as caught:
            await told(drain(place.session, jobs, raise_errors=raise_errors))
        assert caught.value.drained == Drained(done=1)
        row = await told(place.session.get(Job, job.enqueued and job.enqueued.id, populate_existing=True))
        assert (row.status, row.attempts, row.returned) == ("ready", 1, 1)

    place.run(scenario)
