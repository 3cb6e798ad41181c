"""Faults built into the library, one at a time, in processes that end with it: the crash points must find each.

They stand at the library's seams: a guard is taken out of a statement's text on its way to the driver, an event is kept
from a loop's step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine, event

from sa_jobqueue.completion import guard
from sa_jobqueue.loop import Failed
from sa_jobqueue.runner import dispatch, settle, verdict
from sa_jobqueue.runner.dispatch_messages import Claim, ReleaseClaim

Step = Callable[..., tuple[Any, Any]]


class Texts:
    """Statements that are changed on their way to the driver: in all that have it the first of each pair is the second."""

    def __init__(self, *changes: tuple[str, str]) -> None:
        self._changes = changes

    def changed(self, statement: str) -> str:
        for old, new in self._changes:
            statement = statement.replace(old, new)
        return statement

    def __call__(self) -> None:
        @event.listens_for(Engine, "before_cursor_execute", retval=True)
        def change(
            _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any
        ) -> tuple[str, Any]:
            return self.changed(statement), parameters


def _step(module: Any, change: Callable[[Step, Any, Any, float], tuple[Any, Any]]) -> Callable[[], None]:
    def build_in() -> None:
        real = module.step
        module.step = lambda state, events, now: change(real, state, events, now)

    return build_in


def _failed(events: Any, kind: type[Any]) -> list[Any]:
    return [one for one in events if isinstance(one, Failed) and isinstance(one.action, kind)]


def _send_as_if_first(step: Step, state: Any, events: Any, now: float) -> tuple[Any, Any]:
    state, actions = step(state, events, now)
    return state, [replace(one, again=False) if isinstance(one, settle.Flush) else one for one in actions]


def _claim_again(step: Step, state: Any, events: Any, now: float) -> tuple[Any, Any]:
    state, actions = step(state, events, now)
    if failed := _failed(events, Claim):
        state = replace(state, token=failed[-1].action.token)
    return state, actions


def _forget_lost_claims(step: Step, state: Any, events: Any, now: float) -> tuple[Any, Any]:
    state, actions = step(state, events, now)
    return replace(state, lost=()), [one for one in actions if not isinstance(one, ReleaseClaim)]


def _release_once(step: Step, state: Any, events: Any, now: float) -> tuple[Any, Any]:
    state, actions = step(state, events, now)
    if _failed(events, ReleaseClaim):
        state = replace(state, lost=())
    return state, actions


def _swallow_failed_blocks() -> None:
    def uncompleted(completion: Any, returned: object) -> None:
        return None

    verdict.uncompleted = uncompleted


def _complete_after_the_commit() -> None:
    def send(self: guard.Guard, connection: Any) -> None:
        return None

    guard.Guard._send = send  # type: ignore[method-assign]
    _swallow_failed_blocks()


#: By what the library does then.
MUTANTS: dict[str, Callable[[], None]] = {
    "fences a completion by nothing": Texts(
        ("job.lease_token = CAST(%(token)s::UUID AS UUID) FOR NO KEY", "%(token)s IS NOT NULL FOR NO KEY"),
        ("mine.lease_until > clock_timestamp()", "true"),
    ),
    "settles whoever owns the job": Texts(
        ("job.lease_token = batch.token AND job.lease_until > statement_timestamp()", "true")
    ),
    "takes a settlement that it repeats for its first": _step(settle, _send_as_if_first),
    "repeats a claim under its token": _step(dispatch, _claim_again),
    "forgets claims without an answer": _step(dispatch, _forget_lost_claims),
    "releases a lost claim once": _step(dispatch, _release_once),
    "takes a failed block for done": _swallow_failed_blocks,
    "completes a job after the commit of its block": _complete_after_the_commit,
}
