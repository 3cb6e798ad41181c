"""What can go wrong at one statement, and which statements there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import md5


class Mode(StrEnum):
    """What becomes of the statement, and of the process that sends it."""

    KILLED_BEFORE = "the process dies before the statement is sent"
    KILLED_AFTER = "the statement lands, and the process dies before it gets the answer"
    ANSWER_LOST = "the statement lands, and the connection breaks in place of the answer"
    LOST = "the connection breaks, and the statement never lands"
    LATE = "the process stops, and the statement lands after its leases have ended and others have its jobs"
    ANSWER_LATE = "the statement lands, and the process stops until its leases have ended and others have its jobs"

    @property
    def kills(self) -> bool:
        return self in (Mode.KILLED_BEFORE, Mode.KILLED_AFTER)

    @property
    def stops(self) -> bool:
        return self in (Mode.LATE, Mode.ANSWER_LATE)


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """One statement of one part of the runner. `text` is its SQL with all parameters alike."""

    role: str
    text: str

    @property
    def name(self) -> str:
        """Short, and the same for the same text."""
        words = self.text if len(self.text) <= 48 else f"{self.text[:48]}~{md5(self.text.encode()).hexdigest()[:6]}"
        return f"{self.role}: {words}"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The so-and-so-manieth time, from 1, that this statement is sent."""

    statement: Statement
    occurrence: int

    def __str__(self) -> str:
        return f"{self.statement.name} #{self.occurrence}"


def statement_of(sender: str, text: str) -> Statement:
    """Handlers' threads have numbers, which say nothing."""
    role = re.sub(r"-\d+$", "", sender.removeprefix("sa_jobqueue-"))
    return Statement(role, re.sub(r"\s+", " ", re.sub(r"\$\d+", "$", text)).strip())


def points_of(statements: Iterable[Statement]) -> list[Point]:
    """Each with its occurrence, in the order given."""
    counts = Counter[Statement]()
    points = []
    for statement in statements:
        counts[statement] += 1
        points.append(Point(statement, counts[statement]))
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
