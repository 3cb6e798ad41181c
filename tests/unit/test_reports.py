"""What is told of an outcome, once it is known what became of it."""

from __future__ import annotations

import pytest

from sa_jobqueue.events import Event, JobSettled, OutcomeDropped, Subscribers
from sa_jobqueue.runner.reports import report_completed
from sa_jobqueue.states import Verb
from tests.support.executions import finished


class _Heard(list[type[Event]]):
    """The types of what it was told; with `deaf` it has no use for what goes as it should."""

    def __init__(self, *, deaf: bool) -> None:
        super().__init__()
        self._deaf = deaf

    def __call__(self, event: Event) -> None:
        self.append(type(event))

    def hears(self, _kind: type[Event], verb: Verb | None) -> bool:
        return not (self._deaf and verb is Verb.COMPLETE)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_completion_by_the_handlers_own_transaction_is_not_made_for_nobody(deaf: bool) -> None:
    """As one that the settler has written; what the handler said besides is told in any case."""
    heard = _Heard(deaf=deaf)
    report_completed(finished(), Subscribers([heard]))
    assert heard == ([] if deaf else [JobSettled])
    heard.clear()
    report_completed(finished(Verb.RETRY), Subscribers([heard]))
    assert heard == ([] if deaf else [JobSettled]) + [OutcomeDropped]
