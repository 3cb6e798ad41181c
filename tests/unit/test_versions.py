"""Payloads of older versions, brought up by the handler's upcasters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sa_jobqueue.context import context_of
from sa_jobqueue.entry.references import ref
from sa_jobqueue.errors import PayloadError
from sa_jobqueue.failures import describe_error
from sa_jobqueue.outcomes import Discard, Settle
from sa_jobqueue.registry import Registry
from sa_jobqueue.versions import upcast
from tests.entry.application import Document
from tests.support.executions import claimed_job
from tests.support.handlers import embed


def named(payload: Any) -> Any:
    """From version 1: the field was called id."""
    payload["document_id"] = payload.pop("id")
    return payload


def with_model(payload: Any) -> Any:
    """From version 2: there was one model only."""
    return {**payload, "model": "m1"}


UPCASTERS = {1: named, 2: with_model}


@pytest.mark.parametrize(
    ("payload", "version"),
    [
        ({"id": 7}, 1),
        ({"document_id": 7}, 2),
        ({"document_id": 7, "model": "m1"}, 3),
    ],
)
def test_each_version_goes_through_what_came_after_it(payload: Any, version: int) -> None:
    """One function after another, from the payload's own version on; the job's own payload is nobody's to change."""
    job = claimed_job(payload=payload, payload_version=version)
    handler = Registry().handler("k", payload_version=3, upcasters=UPCASTERS)(embed)
    context, before = context_of(job, runner_id="me"), dict(payload)
    assert handler.bind_job(context, job)() == (context, 7, "m1")
    assert context.payload == {"document_id": 7, "model": "m1"}
    assert job.payload == before


@pytest.mark.parametrize("payload", [None, [], "", 0, False, {"deep": [{"a": None}]}])
def test_any_json_value_is_a_payload(payload: Any) -> None:
    """Empty ones and null are values like others."""
    assert upcast("k", payload, 1, 3, {1: lambda old: old, 2: lambda old: old}) == payload
    assert upcast("k", payload, 1, 2, {1: lambda old: {"old": old}}) == {"old": payload}


def test_what_nobody_can_bring_up_is_refused() -> None:
    """Older than the first upcaster, or newer than the handler: with the versions and the setting."""
    with pytest.raises(
        PayloadError, match=r"^kind 'k': .* version 1, .* no older one than 2: .*upcasters=\{1: \.\.\.\}"
    ):
        upcast("k", {}, 1, 3, {2: with_model})
    with pytest.raises(PayloadError, match=r"version 2, .* no older one than 3: .*payload_version=3"):
        upcast("k", {}, 2, 3, {})
    with pytest.raises(PayloadError, match=r"version 4, .* no newer one than payload_version=3"):
        upcast("k", {}, 4, 3, UPCASTERS)


def quotes(payload: Any) -> Any:
    """Fails with an error that quotes what it was given."""
    return int(payload["secret"])


def exits(payload: Any) -> Any:
    """Ends what it believes to be its own process."""
    raise SystemExit(payload["secret"])


@pytest.mark.parametrize(("upcaster", "error"), [(quotes, "ValueError"), (exits, "SystemExit")])
def test_a_failure_names_the_version_and_no_value(upcaster: Any, error: str) -> None:
    """With the line of the upcaster, for that is where its author looks."""
    with pytest.raises(
        PayloadError, match=rf"^kind 'k': .* version 2, .*\.{upcaster.__name__}, raised {error}$"
    ) as caught:
        upcast("k", {"secret": "hunter2"}, 2, 3, {2: upcaster})
    told = describe_error(caught.value)
    assert f"test_versions.py:{upcaster.__code__.co_firstlineno + 2} in {upcaster.__name__}" in told
    assert "hunter2" not in told


def test_a_payload_that_is_nested_deeper_than_python_can_copy_is_refused() -> None:
    """Somebody else's SQL may have stored it."""
    payload: list[Any] = []
    for _ in range(900):
        payload = [payload]
    with pytest.raises(PayloadError, match="kind 'k': the payload is nested too deep"):
        upcast("k", payload, 1, 2, {1: lambda old: old})


def test_an_upcaster_may_settle_the_job() -> None:
    """What is of no use any more need not be brought up."""

    def useless(payload: Any) -> Any:
        raise Settle(Discard("nobody wants it any more"))

    with pytest.raises(Settle):
        upcast("k", {}, 1, 2, {1: useless})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned None: return the payload"),
        (
            {"at": datetime(2026, 1, 1, tzinfo=UTC)},
            r"returned what can't be a payload: \$\.at: datetime\.datetime",
        ),
        ((1, 2), r"returned what can't be a payload: \$: tuple"),
        ({"n": float("nan")}, r"returned what can't be a payload: \$\.n"),
        (ref(Document(title="d")), r"returned a ref\(\)"),
    ],
)
def test_what_an_upcaster_returns_is_a_payload(returned: Any, message: str) -> None:
    """By the rules of enqueue(), so that a handler sees what it would see of a new job."""
    with pytest.raises(PayloadError, match=rf"version 1, .*<lambda>, {message}"):
        upcast("k", {"id": 7}, 1, 3, {1: lambda _payload: returned, 2: with_model})
