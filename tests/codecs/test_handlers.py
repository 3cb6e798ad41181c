"""The signature of a handler is the schema of its payload: at the call, at the run, and for what is no field of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

import pydantic
import pytest

from sa_jobqueue import ConfigurationError, JobContext, PayloadError, Registry, enqueue
from sa_jobqueue.failures import describe_error
from tests.codecs.examples import ONE, Point
from tests.support.handlers import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from elsewhere import Unknown  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

SECRET = "S3CR3T-42"
WHEN = datetime(2026, 11, 30, tzinfo=UTC)


def embed(
    ctx: JobContext, document_id: UUID, at: datetime, where: Point | None = None, **prices: Decimal
) -> Any:
    return document_id, at, where, prices


def test_a_call_writes_json_and_a_run_gets_the_values() -> None:
    """By position and by name, with **fields, and whatever is left out."""
    handler = Registry().handler("k")(embed)
    call = handler.call(ONE, at=WHEN, where=Point(1), a=Decimal("1.0"))
    assert call.payload == {
        "document_id": str(ONE),
        "at": "2026-11-30T00:00:00+00:00",
        "where": {"x": 1, "y": 0.0},
        "a": "1.0",
    }
    assert handler.bind(CONTEXT, call.payload)() == (ONE, WHEN, Point(1), {"a": Decimal("1.0")})
    assert handler.bind(CONTEXT, {"document_id": str(ONE), "at": "2026-11-30T01:00:00+01:00"})() == (
        ONE,
        WHEN,
        None,
        {},
    )


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"document_id": SECRET, "at": WHEN},
            TypeError,
            r"k: \$\.document_id: expected uuid.UUID, got str \(.*embed\(document_id: ",
        ),
        (
            {"document_id": ONE, "at": WHEN, "where": Point(SECRET)},
            TypeError,
            r"k: \$\.where\.x: expected int, got str",
        ),  # type: ignore[arg-type]
        ({"document_id": ONE, "at": WHEN, "b": Decimal("NaN")}, ValueError, r"k: \$\.b: NaN and infinity"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_path(fields: Any, error: type[Exception], text: str) -> None:
    """Before anything is enqueued; the value is not shown."""
    with pytest.raises(error, match=text) as caught:
        Registry().handler("k")(embed).call(**fields)
    assert SECRET not in str(caught.value)


def test_a_stored_payload_is_checked_with_its_path() -> None:
    """Enqueued by name, or by code of another release."""
    handler = Registry().handler("k")(embed)
    with pytest.raises(
        PayloadError, match=r"kind 'k': the payload at \$\.document_id: expected uuid.UUID, got a text"
    ) as caught:
        handler.bind(CONTEXT, {"document_id": SECRET, "at": "2026-11-30"})
    assert SECRET not in str(caught.value)


def test_a_payload_that_contains_itself_is_refused() -> None:
    """An object of Python may; JSON can't."""

    def handler(nodes: list[Any]) -> None: ...

    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper than 100 levels, or contains itself"):
        enqueue(Registry().handler("k")(handler).call(endless))


def test_types_that_are_local_to_a_function_are_found() -> None:
    """Although the annotations of this module are texts."""

    @dataclass
    class Local:
        x: int

    registry = Registry()

    @registry.handler("k")
    def handler(item: Local) -> Local:
        return item

    assert handler.bind(CONTEXT, handler.call(Local(1)).payload)() == Local(1)


def test_types_that_are_local_to_a_function_may_hold_each_other() -> None:
    """Their fields are texts as well."""

    class Note(TypedDict):
        id: UUID

    @dataclass
    class Local:
        note: Note
        next: Local | None = None

    registry = Registry()

    @registry.handler("k")
    def handler(items: list[Local]) -> list[Local]:
        return items

    items = [Local({"id": ONE}, Local({"id": ONE}))]
    assert handler.bind(CONTEXT, handler.call(items).payload)() == items


class Work:
    def __init__(self, token: str = "") -> None:
        self.token = token

    def __call__(self, item: UUID, token: str = "") -> UUID:
        return item

    async def later(self, item: UUID) -> UUID:
        return item


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [
        Work(),
        Work().__call__,
        Work().later,
        functools.partial(Work(), token=SECRET),
        functools.partial(functools.partial(Work.__call__, Work())),
        functools.partial(logged(Work().__call__), token=SECRET),
        logged(functools.partial(Work(), token=SECRET)),
        functools.cache(Work()),
    ],
)
def test_whatever_can_be_called_has_its_annotations_read(function: Any) -> None:
    """Where its code stands: they are texts there."""
    handler = Registry().handler("k")(function)
    assert handler.call(item=ONE).payload == {"item": str(ONE)}
    with pytest.raises(TypeError, match=r"expected uuid.UUID, got str \(.*(Work|wrapper)") as caught:
        handler.call(item=SECRET)
    assert "token=" not in str(caught.value).partition("(item")[0]


def test_a_field_may_be_called_self() -> None:
    """Names of fields are the application's."""

    def handler(self: int) -> int:
        return self

    typed = Registry().handler("k")(handler)
    assert typed(self=1) == 1
    assert typed.bind(CONTEXT, typed.call(self=1).payload)() == 1


def test_a_model_that_names_what_is_nowhere_is_told_when_a_runner_starts() -> None:
    """As an annotation of the handler's own is."""
    registry = Registry()

    @registry.handler("k")
    def handler(item: Incomplete) -> None: ...

    with pytest.raises(ConfigurationError, match=r"a type that .*Incomplete names is not defined"):
        registry.check()


class Incomplete(pydantic.BaseModel):
    item: Unknown


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _refuse_odd(cls, number: int) -> int:
        if number % 2:
            raise RuntimeError(f"{number} is odd")
        return number


@dataclass
class EvenRecord:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise LookupError(f"{self.number} is odd")


@pytest.mark.parametrize(("kind", "line"), [(Even, "_refuse_odd"), (EvenRecord, "__post_init__")])
def test_of_code_of_the_application_that_refuses_a_value_the_place_is_stored(kind: Any, line: str) -> None:
    """Not its text, which quotes the value."""

    def handler(item: Any) -> None: ...

    handler.__annotations__["item"] = kind
    with pytest.raises(PayloadError, match=r"\$\.item: .* raised (Runtime|Lookup)Error") as caught:
        Registry().handler("k")(handler).bind(CONTEXT, {"item": {"number": 424243}})
    told = describe_error(caught.value)
    assert "424243" not in told
    assert line in told


registry = Registry()


@registry.handler("later")
def later(item: Later) -> Later:
    return item


@dataclass
class Later:
    x: int


def test_types_that_are_defined_further_down_are_found() -> None:
    """The signature is read when it is first needed."""
    assert later.bind(CONTEXT, later.call(Later(1)).payload)() == Later(1)


def test_a_type_that_is_imported_for_type_checkers_only_is_told() -> None:
    """Where the handler is first used, and when a runner starts: unchecked is no choice."""
    registry = Registry()

    @registry.handler("k")
    def handler(item: Unknown) -> None: ...

    uses: list[tuple[Any, type[Exception]]] = [
        (lambda: handler.call(item=1), TypeError),
        (registry.check, ConfigurationError),
    ]
    for use, error in uses:
        with pytest.raises(
            error, match=r"handler\('k'\).*name 'Unknown' is not defined.*outside of `if TYPE_CHECKING"
        ):
            use()
