"""What can go wrong at one statement, and which statements there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.sql.expression import ClauseElement

from sa_jobqueue import queries, statements
from tests.crash_points.database import Scenario


class Mode(StrEnum):
    """What becomes of the statement, and of the process that sends it."""

    KILLED_BEFORE = "the process dies before the statement is sent"
    KILLED_AFTER = "the statement lands, and the process dies before it gets the answer"
    ANSWER_LOST = "the statement lands, and the connection breaks in place of the answer"
    LOST = "the connection breaks, and the statement never lands"
    LATE = "the process stops, and the statement lands after its leases have ended and others have its jobs"
    ANSWER_LATE = (
        "the statement lands, and the process stops until its leases have ended and others have its jobs"
    )

    @property
    def kills(self) -> bool:
        return self in (Mode.KILLED_BEFORE, Mode.KILLED_AFTER)

    @property
    def lets_live(self) -> bool:
        return self in (Mode.ANSWER_LOST, Mode.LOST)


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """One statement of one part of the runner. `text` is its SQL with all parameters alike."""

    role: str
    text: str

    @property
    def name(self) -> str:
        """The library's own name for it, else its first words, and the part of the runner."""
        words = self.text if len(self.text) <= 50 else f"{self.text[:50]}..."
        return f"{self.role}: {_names().get(self.text, words)}"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The so-and-so-manieth time, from 1, that this statement is sent in a scenario."""

    scenario: Scenario
    statement: Statement
    occurrence: int

    def __str__(self) -> str:
        return f"{self.scenario}, {self.statement.name} #{self.occurrence}"


def statement_of(sender: str, text: str) -> Statement:
    """`sender` is runner and thread; the numbers of handlers' threads say nothing."""
    thread = sender.partition(" ")[2].removeprefix("sa_jobqueue-")
    return Statement(re.sub(r"-\d+$", "", thread), bare(text))


def raw(statement: ClauseElement) -> str:
    """The text of a statement of the library as the driver is given it."""
    return str(statement.compile(dialect=psycopg.dialect()))


def bare(text: str) -> str:
    """Whatever the driver has made of parameters and lines."""
    return re.sub(r"\s+", " ", re.sub(r"%\(\w+\)s|\$\d+", "$", text)).strip()


@cache
def _names() -> dict[str, str]:
    """For people: text to module and function, of all statements that take no arguments."""
    names = {}
    for package in (statements, queries):
        for module in iter_modules(package.__path__):
            found = import_module(f"{package.__name__}.{module.name}")
            for name, function in vars(found).items():
                if hasattr(function, "cache_info") and not signature(function).parameters:
                    names[bare(raw(function()))] = f"{module.name}.{name}"
    return names


def points_of(scenario: Scenario, statements: Iterable[Statement]) -> list[Point]:
    """Each with its occurrence, in the order given."""
    counts = Counter[Statement]()
    points = []
    for statement in statements:
        counts[statement] += 1
        points.append(Point(scenario, statement, counts[statement]))
    return points


class Occurrence:
    """Picks one point among what a proxy is asked about."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self._left = point.occurrence

    def __call__(self, sender: str, text: str) -> bool:
        if statement_of(sender, text) != self._point.statement:
            return False
        self._left -= 1
        return self._left == 0
