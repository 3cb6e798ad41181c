"""Which faults are tried, and all of them, a few at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests.crash_points.database import Scenario
from tests.crash_points.faults import Mode, Point, Statement
from tests.crash_points.runs import STARTING, Fault, Outcome, Place, Task

#: What so many parts of the runner send is how a session is set up: there the parts take turns, and so do the modes.
COMMON = 3
#: Not only the first time that a statement is sent, but no later than this one, which a run may not come to.
LATEST = 2
#: So many broken connections share a run.
SHARING = 4


class Workers:
    """Runs side by side, each in a place of its own."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places

    def run(self, tasks: Iterable[Task]) -> list[Outcome]:
        """What became of each, in their order."""
        free: SimpleQueue[Place] = SimpleQueue()
        for place in self._places:
            free.put(place)

        def one(task: Task) -> Outcome:
            place = free.get()
            try:
                return place.run(task)
            finally:
                free.put(place)

        with ThreadPoolExecutor(len(self._places)) as pool:
            return list(pool.map(one, tasks))


def every_point(points: Iterable[Point]) -> list[Task]:
    """Each in every mode, alone."""
    return [Task(point.scenario, [(point, mode)]) for point in points for mode in Mode]


def every_statement(points: Iterable[Point]) -> list[Task]:
    """Each statement in every mode once, where it comes up first; what lets its runner live shares runs with others."""
    places: dict[Statement, tuple[Scenario, int]] = {}
    for point in points:
        scenario, _ = places.setdefault(point.statement, (point.scenario, 0))
        if scenario is point.scenario:
            places[point.statement] = scenario, point.occurrence

    def fault(statement: Statement, mode: Mode) -> Fault:
        scenario, count = places[statement]
        return Point(scenario, statement, 1 + list(Mode).index(mode) % min(count, LATEST)), mode

    by_text: defaultdict[str, list[Statement]] = defaultdict(list)
    for statement in places:
        by_text[statement.text].append(statement)
    common = [senders for senders in by_text.values() if len(senders) >= COMMON]
    faults = [fault(one, mode) for one in places if len(by_text[one.text]) < COMMON for mode in Mode]
    for turn, senders in enumerate(common):
        modes = list(Mode)[turn % 3 :: 3]
        faults += [fault(senders[(turn + number) % len(senders)], mode) for number, mode in enumerate(modes)]
    return _packed(faults)


def _packed(faults: Iterable[Fault]) -> list[Task]:
    tasks: list[Task] = []
    sharing: defaultdict[Scenario, list[Fault]] = defaultdict(list)
    for point, mode in faults:
        if not mode.lets_live or point.statement.role == STARTING:
            tasks.append(Task(point.scenario, [(point, mode)]))
        else:
            sharing[point.scenario].append((point, mode))
    for scenario, together in sharing.items():
        runs = -(-len(together) // SHARING)
        tasks += [Task(scenario, together[number::runs]) for number in range(runs)]
    return tasks


def after_a_fault(points: Iterable[Point], outcomes: Iterable[Outcome]) -> list[Task]:
    """What was sent only because something had gone wrong: the same once more, and a second fault there, in every mode."""
    known = {point.statement for point in points}
    found: list[Task] = []
    for outcome in outcomes:
        scenario, faults, _ = outcome.task
        if not all(mode.lets_live for _, mode in faults):
            continue
        for point in outcome.points:
            if point.statement not in known:
                known.add(point.statement)
                found += [Task(scenario, [*faults, (point, mode)]) for mode in Mode]
    return found
