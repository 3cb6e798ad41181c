"""Where in a payload something does not fit: the way down to it, told as a JSON path."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST = 60


class MisfitError(Exception):
    """A value that is not what its place asks for; whoever holds the value adds the step that leads down to it.

    `problem` says what is wrong and shows no value. `wrong_type` tells a type that can't stand there from a value that
    can't. `raised_at` leads to the line of the application's own code that refused the value. It never leaves the library:
    callers are told by TypeError, ValueError or PayloadError.
    """

    def __init__(self, problem: str, *, wrong_type: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.wrong_type = wrong_type
        self.raised_at: TracebackType | None = None
        self._steps: list[str | int] = []

    def within(self, step: str | int) -> MisfitError:
        """The same, seen from the object or array that holds it under this name or index."""
        self._steps.append(step)
        return self

    def __str__(self) -> str:
        path = "$"
        for step in reversed(self._steps):
            path = f"{path}[{step}]" if isinstance(step, int) else member(path, step)
        return f"{short(path)}: {self.problem}"

    def for_caller(self, text: str) -> TypeError | ValueError:
        """What somebody is told who has passed the value."""
        error = TypeError(text) if self.wrong_type else ValueError(text)
        return error.with_traceback(self.raised_at)


def refused_by(what: str, error: Exception | SystemExit) -> MisfitError:
    """Code of the application's own, a constructor or a validator, has refused a value.

    Told are the type of its error and where it was raised, never its text, which may quote the value.
    """
    misfit = MisfitError(f"{what} raised {type(error).__qualname__}")
    misfit.raised_at = error.__traceback__
    return misfit


def member(path: str, name: str) -> str:
    """The path of a member of the object at `path`."""
    return f"{path}.{name}" if name.isidentifier() and len(name) <= 50 else f"{path}[{short(repr(name))}]"


def short(text: str) -> str:
    """The text, or its beginning and end."""
    return text if len(text) <= _LONGEST else f"{text[:40]}...{text[-15:]}"


def type_name(kind: type) -> str:
    """The name of a class as its author would write it: builtins bare, others with their module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def annotation_name(annotation: Any) -> str:
    """The name of a class, or of what stands for one, for a message."""
    return type_name(annotation) if isinstance(annotation, type) else str(annotation)


def is_typed_dict(kind: Any) -> bool:
    """Whether it is a TypedDict, of `typing` or of typing_extensions, which pydantic asks for before Python 3.12."""
    return typing.is_typeddict(kind) or type(kind).__qualname__ == "_TypedDictMeta"


def row_advice(value: object) -> str | None:
    """What stands in a payload for an object of a mapped class; None for anything else."""
    # Not by hasattr(), which asks a property of the same name.
    if "_sa_instance_state" not in getattr(value, "__dict__", ()):
        return None
    return "pass its primary key, or ref(obj) while it has none yet"
