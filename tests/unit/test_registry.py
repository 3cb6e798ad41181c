"""Registering handlers and looking them up."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue.context import JobContext
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.periods import Period
from sa_jobqueue.registry import Registry
from sa_jobqueue.retry import DEFAULT_RETRY, Decision, delays, exponential, fixed, never
from tests.support.handlers import CONTEXT, embed, nothing

if TYPE_CHECKING:
    LaterId = int

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def upcast_async(payload: Any) -> Any:
    return payload


def plain(document_id: int) -> int:
    return document_id


# --- registration -----------------------------------------------------------------------------------------------


def test_a_handler_is_still_its_function() -> None:
    """Registration takes nothing away: the function can be called directly, as tests do."""
    handler = Registry().handler("document.embed")(embed)
    assert handler(CONTEXT, 7, model="m2") == (CONTEXT, 7, "m2")
    assert handler.function is embed


def test_defaults() -> None:
    """What a handler gets that names nothing but its kind."""
    handler = Registry().handler("k")(nothing)
    assert (handler.queue, handler.max_attempts, handler.priority) == ("default", 5, None)
    assert (handler.retry, handler.permanent, handler.aliases) == (DEFAULT_RETRY, (), ())
    assert (handler.payload_version, handler.is_async, handler.timeout) == (1, False, None)
    assert (handler.unique_by, handler.key_scope, handler.on_conflict) == (None, None, None)
    assert (handler.max_payload_bytes, dict(handler.upcasters)) == (262_144, {})


def test_async_functions_are_told_apart() -> None:
    """The runner chooses an executor by it; a callable object counts by its `__call__`."""

    class Callable_:  # noqa: N801
        async def __call__(self) -> None: ...

    async def handler() -> None: ...

    jobs = Registry()
    assert jobs.handler("a")(handler).is_async
    assert jobs.handler("b")(Callable_()).is_async
    assert jobs.handler("c")(functools.partial(handler)).is_async
    assert jobs.handler("e")(functools.partial(Callable_())).is_async
    assert not jobs.handler("d")(functools.partial(plain, 7)).is_async


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"queue": ""}, ValueError, "queue: a name can't be blank"),
        ({"queue": "a\0b"}, ValueError, "queue: the character"),
        ({"queue": "\udcff"}, ValueError, "queue: the character"),
        ({"queue": "q" * 201}, ValueError, "queue: at most 200"),
        ({"queue": None}, TypeError, "queue: expected a text"),
        ({"max_attempts": 0}, ValueError, "max_attempts: 0 is not between 1 and 2,000,000,000"),
        ({"max_attempts": -1}, ValueError, "max_attempts"),
        ({"max_attempts": 2_000_000_001}, ValueError, "max_attempts"),
        ({"max_attempts": 1.0}, TypeError, "max_attempts: expected an int, got float"),
        ({"max_attempts": True}, TypeError, "max_attempts"),
        ({"priority": 10}, ValueError, "priority: 10 is not between 0 and 9"),
        ({"priority": -1}, ValueError, "priority"),
        ({"priority": "high"}, TypeError, "priority"),
        ({"payload_version": 0}, ValueError, "payload_version"),
        (
            {"retry": exponential},
            TypeError,
            r"retry: expected a policy .* got sa_jobqueue\.retry\.exponential",
        ),
        ({"retry": never}, TypeError, "retry"),
        ({"retry": fixed}, TypeError, "retry"),
        ({"retry": delays}, TypeError, "retry"),
        ({"retry": None}, TypeError, "retry"),
        ({"retry": timedelta(seconds=1)}, TypeError, "retry"),
        ({"permanent": (1,)}, TypeError, "permanent: expected exception classes, got 1"),
        ({"permanent": (int,)}, TypeError, "permanent"),
        ({"permanent": ValueError}, TypeError, r"permanent: expected several, .*: write \[ValueError\]"),
        ({"permanent": None}, TypeError, "permanent: expected several"),
        ({"aliases": "old"}, TypeError, r"aliases: expected several, .*: write \['old'\]"),
        ({"aliases": ("",)}, ValueError, "aliases: a name can't be blank"),
        ({"timeout": timedelta(0)}, ValueError, "timeout=0s: must be from 1ms to 366d"),
        ({"timeout": timedelta(seconds=-1)}, ValueError, "timeout=-1s: must be"),
        ({"timeout": timedelta.max}, ValueError, "timeout="),
        ({"timeout": 30}, TypeError, r'timeout=30: .*"never" .*write timedelta\(seconds='),
        ({"timeout": 0}, TypeError, "timeout=0: "),
        ({"timeout": False}, TypeError, "timeout=False: "),
        ({"timeout": "30s"}, TypeError, "timeout='30s': "),
        ({"keep_result": 1}, TypeError, "keep_result=1: expected True or False"),
        ({"max_payload_bytes": 0}, ValueError, "max_payload_bytes: 0 is not between 1 and 67,108,864"),
        ({"max_payload_bytes": 2**26 + 1}, ValueError, "max_payload_bytes: 67108865 is not between"),
        ({"max_payload_bytes": 1e6}, TypeError, "max_payload_bytes: expected an int, got float"),
        ({"max_payload_bytes": None}, TypeError, "max_payload_bytes: expected an int"),
        ({"unique_by": []}, ValueError, "unique_by is empty"),
        ({"unique_by": "document_id"}, TypeError, r"unique_by='document_id': .* write \['document_id'\]"),
        ({"unique_by": 5}, TypeError, "unique_by=5: expected names of fields"),
        ({"unique_by": [5]}, TypeError, "unique_by: expected names of fields, got 5"),
        ({"key_scope": "ever"}, ValueError, "key_scope='ever': expected \"row\""),
        ({"key_scope": timedelta(hours=1)}, ValueError, "key_scope=timedelta"),
        (
            {"key_scope": Period(timedelta(hours=1), at=NOON)},
            ValueError,
            "key_scope=Period.at=....* one and the same period for all calls",
        ),
        ({"on_conflict": "ignore"}, ValueError, "on_conflict='ignore': expected one of 'existing'"),
        ({"upcasters": [len]}, TypeError, "upcasters: expected a dict of functions by version, got list"),
        ({"upcasters": None}, TypeError, "upcasters: expected a dict"),
        ({"upcasters": {"1": len}, "payload_version": 2}, TypeError, "upcasters: .* as keys, got '1'"),
        ({"upcasters": {True: len}, "payload_version": 2}, TypeError, "upcasters: .* as keys, got True"),
        ({"upcasters": {0: len}, "payload_version": 2}, ValueError, "upcasters: 0 is no version before"),
        ({"upcasters": {1: len}}, ValueError, "upcasters: 1 is no version before payload_version=1: each"),
        ({"upcasters": {2: len}, "payload_version": 2}, ValueError, "upcasters: 2 is no version before"),
        ({"upcasters": {1: len, 3: len}, "payload_version": 4}, ValueError, "upcasters: 2 is missing"),
        ({"upcasters": {1: len}, "payload_version": 2**30}, ValueError, "upcasters: 2 is missing"),
        (
            {"upcasters": {1: "f"}, "payload_version": 2},
            TypeError,
            r"upcasters\[1\]: .*one argument.* got 'f'",
        ),
        ({"upcasters": {1: nothing}, "payload_version": 2}, TypeError, r"upcasters\[1\]: .*one argument"),
        ({"upcasters": {1: upcast_async}, "payload_version": 2}, TypeError, r"upcasters\[1\]: .* is async"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The message names the kind and the setting, and the function isn't registered."""
    jobs = Registry()
    with pytest.raises(error, match=rf"(?s)handler\('the\.kind'\): {text}"):
        jobs.handler("the.kind", **settings)
    assert jobs.kinds == ()


def test_a_key_is_made_of_fields_that_the_function_takes() -> None:
    """A misspelt one would fail at every call; the context is no field; **fields may be any but the context."""

    def anything(ctx: JobContext, **fields: Any) -> None: ...

    jobs = Registry()
    with pytest.raises(
        ValueError,
        match=r"handler\('k'\): unique_by: .*embed takes no field 'modle', did you mean 'model'\?",
    ):
        jobs.handler("k", unique_by=["document_id", "modle"])(embed)
    for function in (embed, anything):
        with pytest.raises(ValueError, match="takes no field 'ctx'"):
            jobs.handler("k", unique_by=["ctx"])(function)
    assert jobs.kinds == ()
    assert jobs.handler("a", unique_by=["whatever"])(anything).unique_by == ("whatever",)
    assert jobs.handler("b", unique_by=iter(["model"]))(embed).unique_by == ("model",)


def test_a_field_is_looked_for_once_the_annotations_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type may be defined further down: the key waits for it, and a runner doesn't begin without."""
    jobs = Registry()

    def later(document_id: LaterId) -> None: ...

    right = jobs.handler("right", unique_by=["document_id"])(later)
    jobs.handler("wrong", unique_by=["document"])(later)
    monkeypatch.setitem(later.__globals__, "LaterId", int)
    right.check()
    with pytest.raises(
        ConfigurationError, match=r"handler\('wrong'\): unique_by: .* no field 'document', did you mean"
    ):
        jobs.check()


def test_upcasters_are_copied() -> None:
    """What a registration has checked stays so."""
    given = {2: len, 1: len}
    handler = Registry().handler("k", payload_version=3, upcasters=given)(nothing)
    del given[1]
    assert list(handler.upcasters) == [1, 2]
    with pytest.raises(TypeError):
        handler.upcasters[1] = len  # type: ignore[index]


@pytest.mark.parametrize("kind", ["", "  ", "a\nb", "k" * 201, None, 5])
def test_a_kind_is_a_name(kind: object) -> None:
    """Kinds go into columns, logs and command lines."""
    with pytest.raises((ValueError, TypeError), match=r"handler\(kind\)"):
        Registry().handler(kind)  # type: ignore[arg-type]


def test_a_decorator_without_kind_says_what_to_write() -> None:
    """The commonest slip has its own message."""
    with pytest.raises(
        TypeError, match=r"plain is registered without a kind: write @....handler\('the\.kind'\)"
    ):
        Registry().handler(plain)  # type: ignore[arg-type]


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Klass:
    pass


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (None, "expected a function, got None"),
        ("embed", "expected a function"),
        (Klass, "expected a function"),
        (generator, "generator is a generator"),
        (async_generator, "async_generator is a generator"),
        (lambda a, /: a, "takes a by position only"),
        (lambda *names: names, r"takes \*names by position only"),
        (dict.fromkeys, "by position only"),
        (Registry().handler("other")(plain), "plain is the handler of 'other' already: use aliases"),
    ],
)
def test_what_is_no_handler_is_refused(function: Any, text: str) -> None:
    """A function that would do nothing, or can't be called by names, fails at import, not in its first job."""
    jobs = Registry()
    with pytest.raises(TypeError, match=rf"handler\('the\.kind'\): .*{text}"):
        jobs.handler("the.kind")(function)
    assert jobs.kinds == ()


@pytest.mark.parametrize(
    "names",
    [{"kind": "a"}, {"kind": "b"}, {"kind": "c", "aliases": ("x", "a")}, {"kind": "c", "aliases": ("b",)}],
)
def test_a_taken_kind_names_both_functions(names: dict[str, Any]) -> None:
    """Two handlers for one kind are refused, whichever of the names are aliases, and nothing is half registered."""
    jobs = Registry()
    jobs.handler("a", aliases=("b",))(plain)
    with pytest.raises(ValueError, match=r"nothing is taken by .*\.plain"):
        jobs.handler(**names)(nothing)
    assert jobs.kinds == ("a", "b")


def test_a_kind_is_no_alias_of_itself() -> None:
    """A slip in aliases is told, not swallowed."""
    with pytest.raises(ValueError, match="'a'"):
        Registry().handler("a", aliases=("a",))(plain)


# --- lookup -----------------------------------------------------------------------------------------------------


def test_find_by_kind_and_alias() -> None:
    """Jobs enqueued under a former name run after a rename."""
    jobs = Registry()
    handler = jobs.handler("b2", aliases=("b",), queue="ai")(plain)
    assert jobs.find("b2") is jobs.find("b") is handler
    assert jobs.find("B2") is None
    assert jobs.kinds == ("b", "b2")
    assert jobs.queues == ("ai",)
    assert jobs.handlers == (handler,)
    assert repr(jobs) == "Registry(b, b2)"


def test_nearest_kinds() -> None:
    """A misspelt kind gets a hint, an unrelated one doesn't."""
    jobs = Registry()
    jobs.handler("document.embed")(embed)
    jobs.handler("mail.send")(plain)
    assert jobs.nearest("document.embedd") == ("document.embed",)
    assert jobs.nearest("zzzzzz") == ()


def test_include_adds_all_or_nothing() -> None:
    """Registries of several modules become one; a clash changes neither."""
    one, two, three = Registry(), Registry(), Registry()
    first = one.handler("a")(plain)
    second = two.handler("b", aliases=("c",))(nothing)
    one.include(two)
    assert one.handlers == (first, second)
    assert one.find("c") is second
    one.include(two)
    assert one.kinds == ("a", "b", "c")
    three.handler("z")(plain)
    three.handler("c")(plain)
    with pytest.raises(ValueError, match="'c'"):
        one.include(three)
    assert one.kinds == ("a", "b", "c")


def test_permanent_errors_are_never_retried() -> None:
    """A permanent class and its subclasses give up at once, whatever the policy would say."""
    handler = Registry().handler(
        "k", retry=fixed(timedelta(seconds=1)), permanent=(LookupError, KeyboardInterrupt)
    )(nothing)
    assert handler.decide(1, KeyError("x")) == Decision(None)
    assert handler.decide(1, KeyboardInterrupt()) == Decision(None)
    assert handler.decide(1, ValueError("x")) == Decision(timedelta(seconds=1))


def test_a_policy_may_be_any_function_of_attempt_and_error() -> None:
    """A lambda is a policy; its faults are told in the decision."""
    handler = Registry().handler("k", retry=lambda _attempt, _error: 5)(nothing)  # type: ignore[arg-type, return-value]
    assert "returned 5" in (handler.decide(1, ValueError("x")).fault or "")
