"""Savepoints in any nesting: a job is there if and only if every savepoint around it was released, and the whole committed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sa_jobqueue import Job, enqueue
from tests.contract.cells import Cell
from tests.contract.conftest import Place
from tests.contract.unit import Unit, settled

CELLS = [
    Cell(way, kind, driver)
    for way, kind in (("add", "sessionmaker"), ("enqueue_many", "connection"), ("foreign key", "two-phase"))
    for driver in ("psycopg", "psycopg2", "psycopg async", "asyncpg")
]


class Tree:
    """A transaction of random savepoints. `kept` are the jobs that should be there, `undone` those that should not."""

    def __init__(self, cell: Cell, unit: Unit, seed: int) -> None:
        self._cell = cell
        self._unit = unit
        self._random = random.Random(seed)
        self._count = 0
        self.undone: list[Job] = []

    async def grow(self, depth: int) -> list[Job]:
        """The jobs of this level that are still there at its end."""
        kept: list[Job] = []
        for _ in range(self._random.randint(1, 3)):
            if depth == 4 or self._random.random() < 0.4:
                kept += await self._enter()
                continue
            savepoint: Any = await self._unit.nested()
            inner = await self.grow(depth + 1)
            if self._random.random() < 0.5:
                await settled(savepoint.rollback())
                self.undone += inner
            else:
                await settled(savepoint.commit())
                kept += inner
            if self.undone and self._random.random() < 0.3:
                kept += await self._cell.enter(self._unit, self.undone.pop())
        return kept

    async def _enter(self) -> list[Job]:
        new = []
        for _ in range(self._random.randint(1, 2)):
            self._count += 1
            keyed = self._random.random() < 0.5
            kind = f"job {self._count:03d}"
            new.append(enqueue(kind, {"n": self._count}, idempotency_key=kind if keyed else None))
        return await self._cell.enter(self._unit, *new)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_any_nesting(cell: Cell, place: Place) -> None:
    """Every job of every tree; what was undone comes in again and then counts like any other."""

    async def grown(seed: int) -> list[int]:
        unit = await cell.open(place.engines[cell.driver])
        try:
            tree = Tree(cell, unit, seed)
            kept = await tree.grow(0)
            await unit.commit()
        finally:
            await unit.close()
        assert place.kinds() == sorted({_kind(place, job) for job in kept}), f"seed {seed}"
        assert {job.enqueued.id for job in kept if job.enqueued} == {id_ for id_, *_ in place.jobs()}
        if cell.way != "enqueue_many":
            assert not [job for job in tree.undone if job.enqueued], f"seed {seed}"
        place.empty()
        return [len(kept), len(tree.undone)]

    async def work() -> None:
        sums = [sum(column) for column in zip(*[await grown(seed) for seed in range(12)], strict=True)]
        assert min(sums) > 12  # the trees are no saplings

    place.run(work())


def _kind(place: Place, job: Job) -> str:
    """By its id, for the object may be detached."""
    assert job.enqueued
    return str(next(kind for id_, kind, _ in place.jobs() if job.enqueued and id_ == job.enqueued.id))
