"""One history: what was done so far, on the store and on the model, and how the numbers in its steps become rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import select

from sa_jobqueue.models import jobs
from sa_jobqueue.records import Landing
from sa_jobqueue.store.store import Store
from tests.model.clock import START, reset
from tests.model.ground import OTHER_RUNNER, Ground
from tests.model.invariants import Rows, check_change, check_row, differences
from tests.model.model import Model
from tests.model.rows import Settlement

#: Of an id and of a token that nobody has.
NO_JOB, NOBODY = 10**6, UUID(int=2**127)
#: Which row; what the numbers mean stands in `History.some`.
ROW = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 9])
ROWS = st.lists(ROW, min_size=1, max_size=3)
HELD_ROW = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 9])
#: How many claims of the job ago; 9 is nobody's.
AGE = st.sampled_from([*[0] * 12, 1, 2, 9])
KEY = st.tuples(HELD_ROW, AGE)
KEYS = st.lists(KEY, min_size=1, max_size=3)
LEASES = st.sampled_from([1, 2, 5, 9])
TEXTS = st.sampled_from([None, "a", "b"])
LANDINGS = {
    "landed": Landing.LANDED,
    "done": Landing.LANDED,
    "busy": Landing.BUSY,
    "expired": Landing.EXPIRED,
    "lost": Landing.LOST,
    "unknown": Landing.LOST,
    "gone": Landing.GONE,
}
Act = TypeVar("Act", bound=Callable[..., None])
#: The methods that are steps, and when each may be one.
_WHEN: dict[str, Callable[[Any], bool]] = {}
#: One for each time that a step may be drawn.
_DRAWN: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def step(
    weight: int, *, when: Callable[[Any], bool] = lambda _: True, **arguments: st.SearchStrategy[Any]
) -> Callable[[Act], Act]:
    """A method that may be the next step of a history, as often as its weight says; nothing happens unless `when`.

    Hypothesis leaves out half of the rules in each history and chooses evenly among the others, so that few of its
    histories would have enough claims in them to be about anything.
    """

    def mark(act: Act) -> Act:
        _WHEN[act.__name__] = when
        _DRAWN.extend([st.tuples(st.just(act.__name__), st.fixed_dictionaries(arguments))] * weight)
        return act

    return mark


#: The next step: its name and arguments.
NEXT = st.deferred(lambda: st.sampled_from(_DRAWN).flatmap(lambda drawn: drawn))


class Doubt(NamedTuple):
    """A settlement whose answer was lost, and whether it may still land."""

    one: Settlement
    on_its_way: bool


class History(RuleBasedStateMachine):
    """All that the steps share. `ground` is set for all histories."""

    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self.ground.other.rollback()
        reset(self.ground.person)
        self.store, self.person, self.other = self.ground.store, self.ground.person, self.ground.other
        self.inner = Store(self.other, name=OTHER_RUNNER)
        self.model = Model(START)
        self.rows: Rows = {}
        self.ids: list[int] = []
        self.tokens: dict[int, list[UUID]] = {}
        self.claims = 0
        self.lost_claims: list[UUID] = []
        self.doubts: list[Doubt] = []
        self.fenced: list[tuple[tuple[int, UUID], int]] = []

    def teardown(self) -> None:
        self.other.rollback()

    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        """Take a step, where there may be one, and compare."""
        name, arguments = step
        if _WHEN[name](self):
            getattr(self, name)(**arguments)
            self.compare(at_once=name == "end")

    def compare(self, *, at_once: bool = False) -> None:
        """`at_once` says that several statements may have been seen as one."""
        before, self.rows = self.rows, self.read()
        expected = {job_id: vars(job).copy() for job_id, job in self.model.jobs.items()}
        if self.rows != expected:
            pytest.fail("\n".join(differences(self.rows, expected)))
        for row in self.rows.values():
            check_row(row)
            if (old := before.get(row["id"])) is not None:
                check_change(old, row, at_once=at_once)
        held = [row["unique_key"] for row in self.rows.values() if row["unique_key"] is not None]
        assert len(held) == len(set(held)), "one holder for each key"

    @contextmanager
    def on(self, in_flight: bool) -> Iterator[Store]:
        """The runner's own connection, or the transaction that is open until it ends."""
        if not in_flight:
            yield self.store
        else:
            with self.model.inside():
                yield self.inner

    def read(self) -> Rows:
        rows = self.person.execute(select(jobs)).mappings()
        return {row["id"]: {**row, "errors": tuple(row["errors"])} for row in rows}

    def some(self, numbers: Iterable[int], *statuses: str) -> list[int]:
        """Ids, each once: 0 to 3 is one of these statuses where there is any, 4 to 6 another, 9 none that anybody has."""
        wanted = [job_id for job_id in self.ids if self.any(*statuses, among=[job_id])]
        others = [job_id for job_id in self.ids if job_id not in wanted]
        ids = []
        for number in numbers:
            rows = (wanted or others) if number < 4 else others
            ids.append(rows[number % len(rows)] if rows and number < 9 else NO_JOB)
        return list(dict.fromkeys(ids))

    def any(self, *statuses: str, among: Iterable[int] = ()) -> bool:
        rows = self.model.jobs
        return any(rows[job_id].status in statuses for job_id in among or rows if job_id in rows)

    def keys_of(self, numbers: Iterable[tuple[int, int]]) -> list[tuple[int, UUID]]:
        keys = []
        for number, age in numbers:
            (job_id,) = self.some([number], "running")
            tokens = self.tokens.get(job_id, [])
            keys.append((job_id, tokens[-1 - age] if age < len(tokens) else NOBODY))
        return list(dict.fromkeys(keys))

    def reach(self, what: str, count: int = 1) -> None:
        self.ground.reached[what] += count
