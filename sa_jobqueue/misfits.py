"""Where in a payload something does not fit: the way down to it, told as a JSON path."""

from __future__ import annotations

_LONGEST = 60


class MisfitError(Exception):
    """A value that is not what its place asks for; whoever holds the value adds the step that leads down to it.

    `problem` says what is wrong and shows no value. `wrong_type` tells a type that can't stand there from a value that
    can't. It never leaves the library: callers are told by TypeError, ValueError or PayloadError.
    """

    def __init__(self, problem: str, *, wrong_type: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.wrong_type = wrong_type
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
        return TypeError(text) if self.wrong_type else ValueError(text)


def member(path: str, name: str) -> str:
    """The path of a member of the object at `path`."""
    return f"{path}.{name}" if name.isidentifier() and len(name) <= 50 else f"{path}[{short(repr(name))}]"


def short(text: str) -> str:
    """The text, or its beginning and end."""
    return text if len(text) <= _LONGEST else f"{text[:40]}...{text[-15:]}"


def type_name(kind: type) -> str:
    """The name of a class as its author would write it: builtins bare, others with their module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def row_advice(value: object) -> str | None:
    """What stands in a payload for an object of a mapped class; None for anything else."""
    # Not by hasattr(), which asks a property of the same name.
    if "_sa_instance_state" not in getattr(value, "__dict__", ()):
        return None
    return "pass its primary key, or ref(obj) while it has none yet"
