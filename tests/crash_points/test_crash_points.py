"""Whatever statement a runner or a handler's completion is at when something goes wrong: no job is lost, none is done twice."""

from __future__ import annotations

import os

import pytest

from tests.crash_points.database import Scenario
from tests.crash_points.enumeration import Workers, after_a_fault, every_point, every_statement
from tests.crash_points.runs import Outcome, Task

#: "all": each point, and not each statement once. Takes a quarter of an hour.
EVERY_POINT = os.environ.get("SA_JOBQUEUE_CRASH_POINTS") == "all"
#: The share of points that must have been reached: how often a waiting runner looks around depends on time.
REACHED = 0.5 if EVERY_POINT else 0.9
#: So many failures are shown in full.
SHOWN = 3

pytestmark = [pytest.mark.once, pytest.mark.slow]


def test_every_statement_may_fail_in_every_way(crew: Workers) -> None:
    recorded = crew.run(map(Task, Scenario))
    _check(recorded)
    points = [point for outcome in recorded for point in outcome.points]
    outcomes = crew.run(every_point(points) if EVERY_POINT else every_statement(points))
    _check([*outcomes, *crew.run(after_a_fault(points, outcomes))])
    tried = sum(len(outcome.task.faults) for outcome in outcomes)
    missed = [f"{point} {mode.name}" for outcome in outcomes for point, mode in outcome.missed]
    assert len(missed) <= (1 - REACHED) * tried, "\n".join(
        [f"{len(missed)} of {tried} not reached:", *missed]
    )


def _check(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.wrong]
    if failed:
        summary = "\n".join(
            f"{outcome.task.scenario} {[(str(point), mode.name) for point, mode in outcome.task.faults]}: {outcome.wrong}"
            for outcome in failed
        )
        shown = "\n\n".join(map(str, failed[:SHOWN]))
        pytest.fail(f"{len(failed)} of {len(outcomes)} runs went wrong\n{summary}\n\n{shown}")
