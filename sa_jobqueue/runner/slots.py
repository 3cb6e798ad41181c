"""Which slots are free again, told to the dispatcher: at once where it could claim for them, else in bundles.

A slot is free when its handler is done, not when the row says so, and the dispatcher must not have to wait for a write to
hear of it: claims and writes go side by side. It need not hear of each, though, while jobs wait in line for the slots;
to wake it costs more than many a handler. Nothing here knows SQL or what an outcome means.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sa_jobqueue.runner.settle import freed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sa_jobqueue.runner.dispatch import Freed
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.runner.settle import Finished

#: However long the line is, the dispatcher hears after so many seconds how it goes.
LONGEST_SILENCE = 0.1


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
        self._told_at = dict.fromkeys(limits, 0.0)

    def ended(self, finished: Finished) -> None:
        """A handler has ended, or its job left before it began; from any thread.

        What isn't told has a job in line for its slot, whoever else takes one at the same moment: more wait there than
        slots can be looking for one. Told is also whenever half of a long line is through.
        """
        queue = finished.execution.job.queue
        with self._lock:
            untold = self._untold[queue]
            untold.append(finished)
            now = time.monotonic()
            in_line = self._executor.waiting(queue)
            if in_line > len(untold) + self._limits[queue] and now < self._told_at[queue] + LONGEST_SILENCE:
                return
            self._untold[queue], self._told_at[queue] = [], now
        self._tell(freed(untold))
