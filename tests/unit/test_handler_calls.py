"""Calling a handler for a payload: what a call carries, what a run is given, where the context goes."""

from __future__ import annotations

import functools
import textwrap
from typing import Any, Optional

import pytest

from sa_jobqueue.context import JobContext
from sa_jobqueue.context import JobContext as Renamed
from sa_jobqueue.errors import PayloadError
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.registry import Registry
from tests.support.handlers import CONTEXT, embed, nothing


def any_fields(ctx: JobContext, document_id: int, **rest: Any) -> tuple[int, dict[str, Any]]:
    return document_id, rest


# --- calls ------------------------------------------------------------------------------------------------------


def test_a_call_carries_the_settings_and_what_was_given() -> None:
    """Defaults aren't stored: a waiting job gets the default of the code that runs it."""
    handler = Registry().handler("document.embed", queue="ai", max_attempts=8, priority=0, payload_version=2)(
        embed
    )
    assert handler.call(document_id=7) == HandlerCall("document.embed", {"document_id": 7}, "ai", 8, 0, 2)
    assert handler.call(7, "m1").payload == {"document_id": 7, "model": "m1"}
    assert Registry().handler("n")(nothing).call().payload == {}


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'document_id'"),
        ((7,), {"modle": "m"}, "unexpected keyword argument 'modle'"),
        ((7, "m", 8), {}, "too many positional arguments"),
        ((7,), {"ctx": CONTEXT}, "'ctx'"),
    ],
)
def test_a_wrong_call_fails_before_anything_is_enqueued(args: Any, kwargs: Any, text: str) -> None:
    """TypeError names the kind, the parameter and the signature."""
    handler = Registry().handler("document.embed")(embed)
    with pytest.raises(TypeError, match=rf"document\.embed: .*{text}.*\.embed\(document_id: "):
        handler.call(*args, **kwargs)


def test_a_context_without_its_annotation_is_told() -> None:
    """The name alone makes a field of it: whoever calls or runs the handler hears what to write."""

    def bare(ctx, document_id: int) -> None: ...  # type: ignore[no-untyped-def]

    handler = Registry().handler("k")(bare)
    advice = "; if 'ctx' is meant for the runner's context, write ctx: JobContext"
    with pytest.raises(TypeError, match=f"missing a required argument: 'ctx'.*{advice}$"):
        handler.call(document_id=7)
    with pytest.raises(PayloadError, match=f"lacks 'ctx'.*{advice}$"):
        handler.bind(CONTEXT, {"document_id": 7})
    with pytest.raises(TypeError, match=r"missing .*embed\([^;]*$"):  # annotated: a field that was forgotten
        Registry().handler("k")(embed).call()


def test_any_fields_are_flat_in_the_payload() -> None:
    """**fields stand beside the named ones, and never under the injected name."""
    handler = Registry().handler("k")(any_fields)
    call = handler.call(1, a=2, rest=3)
    assert call.payload == {"document_id": 1, "a": 2, "rest": 3}
    assert handler.bind(CONTEXT, call.payload)() == (1, {"a": 2, "rest": 3})
    with pytest.raises(TypeError, match="'ctx' is filled in by the runner"):
        handler.call(1, ctx=2)
    with pytest.raises(PayloadError, match="has 'ctx'"):
        handler.bind(CONTEXT, {"document_id": 1, "ctx": 2})


# --- runs -------------------------------------------------------------------------------------------------------


def test_bind_gives_fields_as_keyword_arguments() -> None:
    """A run gets the context where it asked for it, the fields by name, and its own defaults."""
    handler = Registry().handler("k")(embed)
    assert handler.bind(CONTEXT, {"document_id": 7})() == (CONTEXT, 7, "m1")
    assert handler.bind(CONTEXT, {"model": "m2", "document_id": 7})() == (CONTEXT, 7, "m2")


def test_binding_leaves_the_payload_alone() -> None:
    """The context isn't put into the job's own payload."""
    payload = {"document_id": 7}
    Registry().handler("k")(embed).bind(CONTEXT, payload)
    assert payload == {"document_id": 7}


@pytest.mark.parametrize("payload", [None, {}, [], {"a": 1}, "text", 5])
def test_a_handler_without_parameters_takes_any_payload(payload: Any) -> None:
    """What it wants of the payload it reads from the context."""

    def reads(ctx: JobContext) -> Any:
        return ctx.id

    assert Registry().handler("n")(nothing).bind(CONTEXT, payload)() == "ran"
    assert Registry().handler("r")(reads).bind(CONTEXT, payload)() == 17


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "the payload is null"),
        ([7], "the payload is an array"),
        ("7", "the payload is a text"),
        (True, "the payload is a boolean"),
        (7, "the payload is a number"),
        ({}, r"lacks 'document_id', which .*\.embed\(document_id: .* give the parameter a default"),
        ({"document_id": 7, "modle": 1}, "has 'modle', which .* doesn't take, did you mean 'model'"),
        ({"document_id": 7, "ctx": 1}, "has 'ctx'"),
    ],
)
def test_a_payload_that_does_not_fit_names_kind_and_field(payload: Any, text: str) -> None:
    """A job of another release fails with a message that says what to change."""
    with pytest.raises(PayloadError, match=rf"(?s)kind 'document\.embed': .*{text}"):
        Registry().handler("document.embed")(embed).bind(CONTEXT, payload)


def test_a_payload_error_tells_names_and_no_values() -> None:
    """Payloads may hold what must not go into a log."""
    with pytest.raises(PayloadError) as caught:
        Registry().handler("k")(embed).bind(CONTEXT, {"document_id": "hunter2", "x": "hunter2"})
    assert "hunter2" not in str(caught.value)


def text_annotation(item: int, *, context: "JobContext") -> Any:  # noqa: UP037
    return context, item


def renamed_annotation(item: int, context: Renamed) -> Any:
    return context, item


def optional_annotation(item: int, context: JobContext | None = None) -> Any:
    return context, item


def old_optional_annotation(item: int, context: Optional[JobContext] = None) -> Any:  # noqa: UP045
    return context, item


EVALUATED: dict[str, Any] = {"JobContext": JobContext}
exec(
    textwrap.dedent(
        """
        def evaluated(item: int, context: JobContext):
            return context, item
        def unresolvable(item: int, context: "jobqueue.JobContext"):
            return context, item
        """
    ),
    EVALUATED,
)


@pytest.mark.parametrize(
    "function",
    [
        text_annotation,
        renamed_annotation,
        optional_annotation,
        old_optional_annotation,
        EVALUATED["evaluated"],
        EVALUATED["unresolvable"],
    ],
    ids=lambda function: function.__name__,
)
def test_the_context_is_recognised_however_it_is_annotated(function: Any) -> None:
    """Any position and name, as class or text, also when a name is imported for type checkers only."""
    handler = Registry().handler("k")(function)
    assert handler.call(item=1).payload == {"item": 1}
    assert handler.bind(CONTEXT, {"item": 1})() == (CONTEXT, 1)


def test_a_field_called_ctx_is_a_field() -> None:
    """Only the annotation makes a parameter the context."""

    def handler(ctx: int, job: list[int]) -> int:
        return ctx

    assert Registry().handler("k")(handler).bind(CONTEXT, {"ctx": 1, "job": []})() == 1


def test_wrapped_functions_keep_their_parameters() -> None:
    """A decorator between function and registration does no harm when it uses functools.wraps."""

    def traced(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    handler = Registry().handler("k")(traced(embed))
    assert handler.bind(CONTEXT, {"document_id": 7})() == (CONTEXT, 7, "m1")


# --- failures ---------------------------------------------------------------------------------------------------
