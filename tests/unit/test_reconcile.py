"""What a row that a write has left out says about that write: the judgement alone, without a database."""

from __future__ import annotations

from uuid import UUID

import pytest

from sa_jobqueue.records import Landing
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.reconcile import _judge, _Owner

MINE, THEIRS = UUID(int=1), UUID(int=2)
KEY = (7, MINE)


def _landing(owner: _Owner | None, verb: Verb, *, again: bool = False) -> tuple[Landing, JobStatus | None]:
    settled = _judge(KEY, owner, verb, again=again)
    assert (settled.id, settled.token) == KEY
    return settled.landing, settled.status


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("owner", "verb", "landing"),
    [
        (None, Verb.COMPLETE, Landing.GONE),
        (_Owner("running", MINE, None, False), Verb.COMPLETE, Landing.BUSY),
        (_Owner("running", MINE, None, True), Verb.COMPLETE, Landing.EXPIRED),
        (_Owner("running", MINE, None, True), Verb.RETRY, Landing.BUSY),
        (_Owner("running", THEIRS, None, False), Verb.COMPLETE, Landing.LOST),
        (_Owner("ready", None, None, None), Verb.COMPLETE, Landing.LOST),
        (_Owner("done", None, THEIRS, None), Verb.COMPLETE, Landing.LOST),
        # A token completes or does something else, never both: another verb of mine is not this completion.
        (_Owner("ready", None, MINE, None), Verb.COMPLETE, Landing.LOST),
    ],
)
def test_what_has_not_landed(owner: _Owner | None, verb: Verb, landing: Landing, again: bool) -> None:
    """Sent for the first time or again: a row that doesn't show our own settlement says that it was left out."""
    assert _landing(owner, verb, again=again) == (landing, None)


def test_a_completion_that_was_in_doubt() -> None:
    """Another verb is sent after it, and done says that the completion was first: nothing leads out of done."""
    done = _Owner("done", None, MINE, None)
    for verb in (Verb.RETRY, Verb.SNOOZE, Verb.DISCARD, Verb.ABORT):
        settled = _judge(KEY, done, verb, again=True)
        assert (settled.landing, settled.status, settled.completed) == (Landing.LANDED, JobStatus.DONE, True)
        assert _judge(KEY, done, verb, again=False).landing is Landing.LOST, "nobody was in doubt"
    assert not _judge(KEY, done, Verb.COMPLETE, again=True).completed, "it is what was sent"


@pytest.mark.parametrize(
    ("status", "token", "verb", "reached"),
    [
        ("done", None, Verb.COMPLETE, "done"),
        ("ready", None, Verb.RETRY, "ready"),
        ("dead", None, Verb.RETRY, "dead"),
        ("cancelled", None, Verb.SNOOZE, "cancelled"),
        ("cancelled", None, Verb.ABORT, "cancelled"),
        # Claimed again since, by anybody.
        ("running", THEIRS, Verb.RETRY, "ready"),
        ("running", THEIRS, Verb.SNOOZE, "ready"),
        ("running", THEIRS, Verb.RELEASE, "ready"),
        # Sent back by a person since, and claimed.
        ("ready", None, Verb.DISCARD, "dead"),
        ("running", THEIRS, Verb.DISCARD, "dead"),
        ("ready", None, Verb.ABORT, "cancelled"),
    ],
)
def test_what_has_landed_after_all(status: str, token: UUID | None, verb: Verb, reached: str) -> None:
    """Sent again, the row shows our settlement: it landed, with the status that it gave, whatever came after it."""
    owner = _Owner(status, token, MINE, None if token is None else False)
    assert _landing(owner, verb, again=True) == (Landing.LANDED, JobStatus(reached))
    assert _landing(owner, verb) == (Landing.LOST, None)
