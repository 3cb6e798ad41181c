"""One process with one runner: the real crew and its real end, on the world's threads; only the database is a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sa_jobqueue import loop
from sa_jobqueue.events import Subscribers
from sa_jobqueue.maintenance import duties, prune
from sa_jobqueue.runner import (
    attempt,
    book,
    completing,
    crew,
    dispatch,
    ending,
    idling,
    leases,
    listening,
    lost_claims,
    low_water,
    pace,
    progress,
    settle,
    slots,
    timeouts,
    watch,
)
from sa_jobqueue.runner.crew import Crew
from sa_jobqueue.runner.ending import Ending, end
from sa_jobqueue.runner.executors import threads
from sa_jobqueue.runner.roles import dispatcher, listener
from tests.simulation.hands import Hands
from tests.simulation.machine import STAGE, Chance, Clock, SimpleQueue, Threading, replace, suppress
from tests.simulation.store import FakeEar, FakeStore, Site
from tests.simulation.world import Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sa_jobqueue.loop import Step
    from sa_jobqueue.registry import Registry
    from tests.simulation.checks import Checks


def _uuid() -> UUID:
    return UUID(int=STAGE.world.random.getrandbits(128))


def simulated(patch: pytest.MonkeyPatch) -> None:
    """Give the runner's modules the world's clock, chance, threads and connections."""
    clock, chance, threading = Clock(), Chance(), Threading()
    for module in (
        attempt,
        book,
        completing,
        dispatcher,
        ending,
        listener,
        loop,
        threads,
        watch,
    ):
        patch.setattr(module, "time", clock)
    for module in (dispatcher, listener, loop):
        patch.setattr(module, "random", chance)
    for module in (book, loop, progress, slots, threads, watch):
        patch.setattr(module, "threading", threading)
    for module in (
        dispatch,
        duties,
        idling,
        leases,
        listening,
        lost_claims,
        low_water,
        pace,
        settle,
        timeouts,
    ):
        patch.setattr(module, "replace", replace)
    for module in (crew, loop, threads):
        patch.setattr(module, "SimpleQueue", SimpleQueue)
    patch.setattr(threads, "suppress", suppress)
    patch.setattr(crew, "uuid4", _uuid)
    patch.setattr(crew, "runner_engine", lambda site, _name, **_: site)
    patch.setattr(crew, "Store", FakeStore)
    patch.setattr(crew, "Ear", FakeEar)
    defaults = prune.Pruning.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "clock", clock.monotonic)
    patch.setattr(prune, "PRUNE_LIMIT", 2)  # so that a sweep takes several batches


class WatchedCrew(Crew):
    """The crew of a runner, watched between the steps and the hands of its loops; `steps` may replace a step."""

    def __init__(
        self,
        site: Site,
        registry: Registry,
        subscribers: Subscribers,
        hands: Hands,
        steps: Mapping[str, Step[Any]],
    ) -> None:
        self._hands = hands
        self._steps = steps
        super().__init__(site.name, site, registry, site.settings, subscribers)  # type: ignore[arg-type]
        hands.book = self.book

    def _loop(self, store: Any, name: str, state: Any, step: Any, role: Any) -> Any:
        watched = self._hands.watched_step(name, self._steps.get(name, step))
        role.perform = self._hands.watched_perform(name, role.perform)
        made = self._hands.loops[name] = super()._loop(store, name, state, watched, role)
        return made


class Process:
    """One start of one runner; `crash`, `pause` and `stop` are what may happen to it.

    `hand_back`: it owns its process, which ends with it; else it is embedded in a host that lives on.
    """

    def __init__(
        self,
        site: Site,
        registry: Registry,
        checks: Checks,
        steps: Mapping[str, Step[Any]],
        *,
        hand_back: bool,
    ) -> None:
        self.site = site
        self.name = site.name
        self.gone = self.stopping = False
        self._checks = checks
        self._hand_back = hand_back
        self._group = Group(site.name)
        self.hands = Hands(site, checks, site.database)
        self.crew = WatchedCrew(site, registry, Subscribers([checks.on_event]), self.hands, steps)
        site.world.spawn(self._group, self._run, "main")

    @property
    def left_over(self) -> Iterator[str]:
        """What is held, in doubt or remembered, though nothing should be."""
        book, dispatch, settling = self.crew.book, self._state("dispatch"), self._state("settle")
        if len(book):
            yield f"the book holds {book.snapshot()}"
        held = {queue: lane.held for queue, lane in dispatch.lanes.items()}
        if any(held.values()):
            yield f"slots are not free: {held}"
        if dispatch.unwritten:
            yield f"{dispatch.unwritten} outcomes count as unwritten"
        if dispatch.lost:
            yield f"lost claims are never done with: {dispatch.lost}"
        if settling.pending or settling.doubtful or settling.delayed or settling.waits or settling.blocked:
            yield f"outcomes are left: {settling}"

    @property
    def paused_until(self) -> float:
        return self._group.paused_until

    @property
    def at_rest(self) -> bool:
        """Nothing is held, and nothing is in doubt."""
        return self.gone or (not self.stopping and next(self.left_over, None) is None)

    def pause(self, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT so many seconds later."""
        self._group.paused_until = max(self._group.paused_until, self.site.world.now + seconds)

    def crash(self) -> None:
        """As SIGKILL."""
        self.gone = True
        self.site.world.kill(self._group)

    def stop(self) -> None:
        """As its first signal."""
        if not self.stopping and not self.gone:
            self.stopping = True
            self.crew.ask_to_end(Ending("SIGTERM"))

    def _run(self) -> None:
        self.crew.start()
        asked = self.crew.wait_for_end()
        if asked.fault is not None:
            self._checks.wrong(f"{self.name}: the loop {asked.cause} died: {asked.fault!r}")
        end(self.crew, asked, hand_back=self._hand_back)
        if self._hand_back:
            self.site.world.kill(self._group)
        self.gone = True

    def _state(self, name: str) -> Any:
        return self.hands.loops[name]._state
