"""Every kind of fault once, under load: nothing is lost, nothing is done twice, and every runner works again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.drive import run
from tests.chaos.faults import FAULTS

#: Of the plan of faults alone, one that is short: what runs at the moment of a fault is another matter each time.
SEED = 288


@pytest.mark.once
@pytest.mark.slow
def test_every_kind_of_fault_under_load() -> None:
    """Runners in threads and on event loops, with clocks of their own, producers, and an operator who interferes."""
    report = run(seed=SEED, longest=1.0)
    print(report.table())
    assert report.wrong() == []
    assert Counter(kind for strike in report.strikes for kind in strike.kinds) == dict.fromkeys(FAULTS, 1)
    assert [name for name, value in report.sums.items() if value == 0] == []
