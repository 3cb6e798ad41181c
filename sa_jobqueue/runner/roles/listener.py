"""The hands of the listener: it hears, and tells the dispatcher. When to do what is decided in `listening`."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from sa_jobqueue.events import WakeUpFailed
from sa_jobqueue.runner import listening

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.events import Subscribers
    from sa_jobqueue.store.ear import Ear


class Listener:
    """Has a connection of its own, and its thread spends its life waiting for what comes there."""

    def __init__(
        self, ear: Ear, *, runner_id: str, to_dispatcher: Callable[[Any], None], subscribers: Subscribers
    ) -> None:
        self._ear = ear
        self._runner_id = runner_id
        self._to_dispatcher = to_dispatcher
        self._subscribers = subscribers
        self._told_unheard = False

    def perform(self, action: Any) -> Any:
        match action:
            case listening.Tell(event):
                self._to_dispatcher(event)
            case listening.Hear(until):
                notified = self._ear.hear(until - time.monotonic())
                return listening.Heard(notified, _jitter())
            case listening.Check():
                self._ear.check()
                return listening.Checked()
            case listening.Listen():
                return self._listen()
        return None

    def _listen(self) -> listening.Listened:
        heard = self._ear.listen()
        if not heard and not self._told_unheard and not self._ear.interrupted:
            self._told_unheard = True
            self._subscribers.emit(WakeUpFailed(runner_id=self._runner_id, cause="unheard"))
        return listening.Listened(heard, _jitter(), for_good=not heard and self._ear.pooled)


def _jitter() -> float:
    return random.random()  # noqa: S311 - spreads looks
