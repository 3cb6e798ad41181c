"""A clock that nobody waits for, and a scheduler that picks who goes on: the same seed, the same history."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet


class Group:
    """Tasks that stop and go on together, as the threads of one process do."""

    def __init__(self) -> None:
        self.paused_until = 0.0
        self.dead = False
        self.stopping = False


class Task:
    """One thread of the simulated world; `carries` and `block` are for whoever runs in it."""

    __slots__ = ("block", "carries", "green", "group", "wake_at")

    def __init__(self, group: Group, run: Callable[[], None], hub: greenlet) -> None:
        self.group = group
        self.green = greenlet(run, hub)
        self.wake_at: float | None = None
        self.carries: Any = None
        self.block: Any = None


class World:
    """Time and tasks."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.random = Random(seed)
        self.nobody = Group()
        self.current: Task | None = None
        self._failures: list[BaseException] = []
        self._tasks: set[Task] = set()
        # When, a random number that orders what happens at the same time, and a count for the rest.
        self._agenda: list[tuple[float, float, int, Task]] = []
        self._count = 0
        self._hub = getcurrent()
        self._closed = False

    def spawn(self, group: Group, run: Callable[[], None], *, at: float | None = None) -> Task:
        """Begin a task, now or at a time."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # told to the schedule, which ends with it
                self._failures.append(error)

        task = Task(group, guarded, self._hub)
        self._tasks.add(task)
        self._plan(task, self.now if at is None else at)
        return task

    def call_at(self, at: float, act: Callable[[], None]) -> None:
        """Something that the world does by itself."""
        self.spawn(self.nobody, act, at=at)

    def sleep(self, seconds: float) -> None:
        self.wait(self.now + seconds)

    def wait(self, until: float | None) -> None:
        """The current task goes on at that time, or when `wake` is called for it."""
        if self._closed:
            raise GreenletExit
        assert self.current is not None
        if until is not None:
            self._plan(self.current, until)
        self._hub.switch()

    def wake(self, task: Task) -> None:
        """Let it go on now, if it doesn't anyway."""
        if task.wake_at is None or task.wake_at > self.now:
            self._plan(task, self.now)

    def run(self, *, until: float, wrong: Callable[[], bool], done: Callable[[], bool]) -> None:
        """Go on until something is wrong, or that time; `done` is asked whenever time passes. Raises what a task raised."""
        while self._agenda and not wrong():
            at, _, _, task = self._agenda[0]
            if at > self.now:
                if done():
                    return
                self.now = min(at, until)
                if at > until:
                    return
            heapq.heappop(self._agenda)
            if task.wake_at != at or task.group.dead:
                continue  # it was woken earlier, or nothing ever wakes it
            if task.group.paused_until > self.now:
                self._plan(task, task.group.paused_until)
                continue
            self.current, task.wake_at = task, None
            task.green.switch()
            self.current = None
            if self._failures:
                raise self._failures[0]

    def kill(self, group: Group) -> None:
        """Its tasks never go on."""
        group.dead = True

    def close(self) -> None:
        """End all tasks, wherever they are."""
        self._closed = True
        for task in self._tasks:
            task.group.dead = True
            if task.green:
                task.green.throw()
        self._tasks.clear()

    def _plan(self, task: Task, at: float) -> None:
        self._count += 1
        task.wake_at = at
        heapq.heappush(self._agenda, (at, self.random.random(), self._count, task))


class Clock:
    """Stands in for the module `time` in what is simulated."""

    world: World

    def monotonic(self) -> float:
        return self.world.now

    perf_counter = monotonic


class Chance:
    """Stands in for the module `random`."""

    world: World

    def random(self) -> Any:
        return self.world.random.random()
