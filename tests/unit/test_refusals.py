"""A refused row is told once for each verb."""

from __future__ import annotations

import pytest

from sa_jobqueue.events import RowRefused, Subscribers
from sa_jobqueue.runner.refusals import RefusalsTold
from sa_jobqueue.states import Verb


def test_once_for_each_row_and_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is refused; only what was forgotten to make room is told again."""
    monkeypatch.setattr("sa_jobqueue.runner.refusals.REMEMBERED", 3)
    heard: list[object] = []
    told = RefusalsTold("r", Subscribers([heard.append]))
    sent = [(1, Verb.CLAIM), (1, Verb.CLAIM), (1, Verb.RENEW), (2, Verb.CLAIM), (1, Verb.CLAIM)]
    for job_id, verb in sent:
        told(job_id, verb, "fault")
    once = [
        RowRefused(runner_id="r", job_id=job_id, verb=verb, fault="fault")
        for job_id, verb in dict.fromkeys(sent)
    ]
    assert heard == once
    told(3, Verb.CLAIM, "fault")
    told(1, Verb.CLAIM, "fault")
    assert heard[-1] == once[0]
