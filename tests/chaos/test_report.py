"""The verdict: what is slow, and what is a storm of log lines."""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.drive import every_kind
from tests.chaos.faults import FAULTS, OUTAGES
from tests.chaos.fleet import Lines, count_lines
from tests.chaos.report import RECOVERY, REST, Report, Strike

LOG = """\
12:00:00 ERROR   the settle loop fails, it goes on trying: the server closed the connection
\tbefore or while processing the request
12:00:01 WARNING job 7 nap failed in 1s, attempt 1 of 9, again in 1s: OSError
      at app.py:1 in nap
"""


def report(*, kind: str = "read-only", recovery: float = 1.0, itself: int = 0, rest: float = 1.0) -> Report:
    strike = Strike(
        (kind,), seconds=2.0, recovery=recovery, rescue=0.0, claims=0, lines=[Lines(), Lines(99, itself)]
    )
    return Report(seed=1, server="none", strikes=[strike], start=1.0, rest=rest)


def test_lines_are_records() -> None:
    """Those that name a job are as many as jobs; the others are what storms are made of."""
    assert count_lines(LOG) == Lines(jobs=1, itself=1)


def test_a_calm_run_passes() -> None:
    calm = report(itself=15)
    assert (calm.wrong(), calm.slow()) == ([], [])
    assert "read-only" in calm.table()


def test_a_storm_of_lines_is_wrong() -> None:
    """In an outage; without one a runner may say what it has to."""
    assert report(itself=16).wrong()
    assert not report(itself=16, kind="SIGSTOP").wrong()


def test_a_slow_recovery_is_told() -> None:
    assert report(recovery=RECOVERY + 3).slow()
    assert report(rest=REST + 2).slow()


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_every_kind_once(seed: int) -> None:
    """And the same seed is the same plan."""
    plan = every_kind(Random(seed))
    assert sorted(kind for kinds in plan for kind in kinds) == sorted(FAULTS)
    assert plan == every_kind(Random(seed))
    assert FAULTS.keys() > OUTAGES
