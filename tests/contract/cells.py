"""The table: every way in, on every sort of session, over every driver. What can't be has its reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import product

from sa_jobqueue import Job, enqueue_many
from tests.contract.sessions import SESSIONS, Open
from tests.contract.unit import Unit, settled
from tests.entry.application import Document

Way = Callable[[Unit, list[Job]], Awaitable[list[Job]]]
#: Name, and whether it is an async one.
DRIVERS = {"psycopg": False, "psycopg2": False, "psycopg async": True, "asyncpg": True}


async def by_add(unit: Unit, jobs: list[Job]) -> list[Job]:
    await unit.put(*jobs)
    await unit.flush()
    return jobs


async def by_add_all(unit: Unit, jobs: list[Job]) -> list[Job]:
    await unit.put_all(jobs)
    await unit.flush()
    return jobs


async def by_foreign_key(unit: Unit, jobs: list[Job]) -> list[Job]:
    documents = []
    for job in jobs:
        document = Document(title="pointing")
        document.job = job
        documents.append(document)
    await unit.put(*documents)
    await unit.flush()
    return jobs


async def by_secondary_table(unit: Unit, jobs: list[Job]) -> list[Job]:
    await unit.put(Document(title="pointing", jobs=list(jobs)))
    await unit.flush()
    return jobs


async def by_merge(unit: Unit, jobs: list[Job]) -> list[Job]:
    """Another object is the job then: the one that the merged document has."""
    merged = [(await unit.merge(Document(title="pointing", job=job))).job for job in jobs]
    await unit.flush()
    return merged


async def by_enqueue_many(unit: Unit, jobs: list[Job]) -> list[Job]:
    told = await settled(enqueue_many(unit.target, jobs))
    assert told == [job.enqueued for job in jobs]
    return jobs


WAYS: dict[str, Way] = {
    "add": by_add,
    "add_all": by_add_all,
    "foreign key": by_foreign_key,
    "secondary table": by_secondary_table,
    "merge": by_merge,
    "enqueue_many": by_enqueue_many,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One place in the table."""

    way: str
    session: str
    driver: str

    @property
    def impossible(self) -> str | None:
        """Why there is no such thing, None for what there is."""
        if self.session == "connection" and self.way != "enqueue_many":
            return "a connection has no unit of work"
        if self.session == "repository" and self.way not in ("foreign key", "secondary table"):
            return "a repository adds objects of the application's own model alone"
        if DRIVERS[self.driver] and SESSIONS[self.session][1] is None:
            return "Flask-SQLAlchemy has no AsyncSession"
        return None

    @property
    def open(self) -> Open:
        opened = SESSIONS[self.session][DRIVERS[self.driver]]
        assert opened is not None
        return opened

    async def enter(self, unit: Unit, *jobs: Job) -> list[Job]:
        """Let the jobs come in; answers with the objects that tell what became of them."""
        return await WAYS[self.way](unit, list(jobs))

    def __str__(self) -> str:
        return f"{self.way}, {self.session}, {self.driver}"


TABLE = [Cell(*names) for names in product(WAYS, SESSIONS, DRIVERS)]
CELLS = [cell for cell in TABLE if cell.impossible is None]
