"""What the crash points are for: a library that does one thing wrong is found out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.sql.expression import ClauseElement

from sa_jobqueue.statements.claim import claim
from sa_jobqueue.statements.fence import fence
from sa_jobqueue.statements.settle import complete, release_claim
from tests.crash_points.database import Scenario
from tests.crash_points.enumeration import Workers
from tests.crash_points.faults import Mode, Point, Statement, bare, raw
from tests.crash_points.mutants import MUTANTS, Texts
from tests.crash_points.runs import Fault, Task

pytestmark = [pytest.mark.once, pytest.mark.slow]

#: Who sends what, and what becomes of it; and what is said of the library that can't cope with it.
CASES: dict[str, tuple[Scenario, Sequence[tuple[str, ClauseElement, Mode]], str]] = {
    "fences a completion by nothing": (
        Scenario.COMPLETIONS,
        [("threads", fence(), Mode.LATE)],
        "goes from ready to done|has ended a hold of second|another's token",
    ),
    "settles whoever owns the job": (
        Scenario.OUTCOMES,
        [("settle", complete(), Mode.LATE)],
        "goes from ready to done|has ended a hold of second|goes from done to done",
    ),
    "takes a settlement that it repeats for its first": (
        Scenario.OUTCOMES,
        [("settle", complete(), Mode.ANSWER_LOST)],
        "which first has told 0 times",
    ),
    "repeats a claim under its token": (
        Scenario.OUTCOMES,
        [("dispatch", claim(), Mode.ANSWER_LOST)],
        "another claim had the same token",
    ),
    "forgets claims without an answer": (
        Scenario.OUTCOMES,
        [("dispatch", claim(), Mode.ANSWER_LOST)],
        "was taken from first, which lives",
    ),
    "releases a lost claim once": (
        Scenario.OUTCOMES,
        [("dispatch", claim(), Mode.ANSWER_LOST), ("dispatch", release_claim(), Mode.LOST)],
        "was taken from first, which lives",
    ),
    "takes a failed block for done": (Scenario.COMPLETIONS, [], "is done and has 0 effects"),
    "completes a job after the commit of its block": (
        Scenario.COMPLETIONS,
        [("threads", text("COMMIT"), Mode.KILLED_AFTER)],
        "is done and has 2 effects",
    ),
}


def test_every_mutant_is_found(crew: Workers) -> None:
    assert set(CASES) == set(MUTANTS)
    names = list(CASES)
    outcomes = crew.run(
        Task(scenario, _faults(name, scenario, points), name) for name, (scenario, points, _) in CASES.items()
    )
    missed = [
        f"{name}: {outcome}"
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome.missed
        or not any(word in what for word in CASES[name][2].split("|") for what in outcome.wrong)
    ]
    assert not missed, "\n\n".join(missed)


def _faults(name: str, scenario: Scenario, points: Sequence[tuple[str, ClauseElement, Mode]]) -> list[Fault]:
    mutant = MUTANTS[name]

    def sent(statement: ClauseElement) -> str:
        given = raw(statement)
        return bare(mutant.changed(given) if isinstance(mutant, Texts) else given)

    return [(Point(scenario, Statement(role, sent(statement)), 1), mode) for role, statement, mode in points]
