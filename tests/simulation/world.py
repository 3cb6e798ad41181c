"""A clock that nobody waits for, and a scheduler that picks who goes on: the same seed, the same history."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

#: A world in which so many turns pass in no time at all is spinning.
MOST_TURNS_AT_ONCE = 20_000


class Group:
    """Tasks that stop and go on together, as the threads of one process do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused_until = 0.0
        self.dead = False


class Task:
    """One thread of the simulated world."""

    __slots__ = ("awaited_by", "green", "group", "name", "over", "wake_at")

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.green: greenlet
        self.over = False
        self.wake_at: float | None = None
        self.awaited_by: list[Task] = []

    def __lt__(self, other: Task) -> bool:
        return self.name < other.name


class World:
    """Time and tasks. `preemption` is the chance that a task stops for a moment where a thread takes a lock.

    What anybody finds wrong goes into `wrong`, and ends the history. `history` is None unless it is to be read.
    """

    def __init__(self, seed: int, *, preemption: float = 0.0) -> None:
        self.now = 1000.0
        self.random = Random(seed)
        self.wrong: list[str] = []
        self.history: list[str] | None = None
        self.nobody = Group("")
        self.current: Task | None = None
        self._preemption = preemption
        self._tasks: set[Task] = set()
        # When, a random number that orders what happens at the same time, and who.
        self._agenda: list[tuple[float, float, Task]] = []
        self._hub = getcurrent()
        self._closed = False
        self._turns = 0

    def note(self, what: str) -> None:
        """A line of the history; ask first whether there is one."""
        if self.history is not None:
            who = "" if self.current is None else f"{self.current.group.name}/{self.current.name}"
            self.history.append(f"{self.now - 1000:8.3f}  {who:24}  {what}")

    def spawn(self, group: Group, run: Callable[[], object], name: str, *, at: float | None = None) -> Task:
        """Begin a task, now or at a time."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # a fault of the world itself: nothing simulated lets one out
                self.wrong.append(f"the task {name} died: {error!r}")
            finally:
                task.over = True
                self._tasks.discard(task)
                for waiting in task.awaited_by:
                    self.wake(waiting)

        task = Task(group, name)
        task.green = greenlet(guarded, self._hub)
        self._tasks.add(task)
        self._plan(task, self.now if at is None else at)
        return task

    def call_at(self, at: float, act: Callable[[], object]) -> None:
        """Something that the world does by itself."""
        self.spawn(self.nobody, act, "world", at=at)

    def sleep(self, seconds: float) -> None:
        self.wait(self.now + seconds)

    def wait(self, until: float | None) -> None:
        """The current task goes on at that time, or when `wake` is called for it."""
        task = self.asking()
        if until is not None:
            self._plan(task, until)
        self._hub.switch()

    def asking(self) -> Task:
        """The current task; in a closed world, whatever has gone on in it ends here."""
        if self._closed:
            raise GreenletExit
        assert self.current is not None
        return self.current

    def wake(self, task: Task) -> None:
        """Let it go on now, if it doesn't anyway."""
        if task.wake_at is None or task.wake_at > self.now:
            self._plan(task, self.now)

    def preempt(self) -> None:
        """Here a thread may lose the processor."""
        if self._preemption and self.random.random() < self._preemption:
            self.sleep(self.random.random() ** 3 * 0.1)

    def run(self, until: float) -> None:
        """Go on until something is wrong, or that time."""
        agenda, wrong = self._agenda, self.wrong
        while agenda and not wrong:
            at, _, task = agenda[0]
            if at > self.now:
                if at > until:
                    break
                self.now = at
                self._turns = 0
            heapq.heappop(agenda)
            if task.wake_at != at or task.group.dead:
                continue  # it was woken earlier, or nothing ever wakes it
            if task.group.paused_until > self.now:
                self._plan(task, task.group.paused_until)
                continue
            self._turns += 1
            if self._turns > MOST_TURNS_AT_ONCE:
                wrong.append(f"time stands still: {task.group.name}/{task.name} spins")
            self.current, task.wake_at = task, None
            task.green.switch()
            self.current = None
        self.now = max(self.now, until)

    def kill(self, group: Group) -> None:
        """Its tasks never go on."""
        group.dead = True

    def close(self) -> None:
        """End all tasks, wherever they are."""
        self._closed = True
        for task in list(self._tasks):
            task.group.dead = True
            if task.green:
                task.green.throw()
        self._tasks.clear()
        self._agenda.clear()

    def _plan(self, task: Task, at: float) -> None:
        task.wake_at = at
        heapq.heappush(self._agenda, (at, self.random.random(), task))
