"""Which slots are free again: the dispatcher hears of it when handlers end, but not of each one by itself.

A slot is free when its handler is done, not when the row says so, and the dispatcher must not have to wait for a write to
hear of it: claims and writes go side by side. To wake it costs more than many a handler, though. So the thread in which a
handler ends tells when that may be worth a claim, and the settler whatever is left, each time before it writes. Nothing
here knows SQL or what an outcome means.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sa_jobqueue.runner.settle import freed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sa_jobqueue.runner.dispatch_messages import Freed
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.runner.settle import Finished

#: Of slots without a line this share is worth a turn of the dispatcher by itself, for it claims for what is free.
WORTH_A_TURN = 8


class Slots:
    """The outcomes that the dispatcher has not been told yet; `limits` are the slots of each queue."""

    def __init__(
        self, limits: Mapping[str, int], *, executor: Executor, tell: Callable[[Freed], None]
    ) -> None:
        self._limits = limits
        self._executor = executor
        self._tell = tell
        self._lock = threading.Lock()
        self._untold: dict[str, list[Finished]] = {queue: [] for queue in limits}

    def ended(self, finished: Finished) -> None:
        """A handler has ended, or its job left before it began; from any thread. Ask for the rest to be told later.

        Told is at once when half of the line is through, and when no line is left.
        """
        queue = finished.execution.job.queue
        with self._lock:
            untold = self._untold[queue]
            untold.append(finished)
            if len(untold) < max(self._executor.waiting(queue), self._limits[queue] // WORTH_A_TURN):
                return
            self._untold[queue] = []
        self._tell(freed(untold))

    def tell_rest(self) -> None:
        """Tell what has not been told yet: none of it may wait for the next handler to end."""
        with self._lock:
            untold = [one for line in self._untold.values() for one in line]
            for line in self._untold.values():
                line.clear()
        if untold:
            self._tell(freed(untold))
