"""Producers that enqueue in transactions of their own, some of which are rolled back, and an operator who interferes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.orm import Session

from sa_jobqueue import Job, enqueue, enqueue_many
from sa_jobqueue.admin import cancel, prune, redrive
from sa_jobqueue.states import JobStatus
from tests.chaos import app

COMMITTED, ROLLED_BACK, UNKNOWN = "committed", "rolled back", "unknown"
#: Producers wait while so many jobs are ready.
BACKLOG = 150
#: What no outage explains: a duplicate key, for example, must not hurt whoever enqueues.
MISTAKES = (DataError, IntegrityError, ProgrammingError)
_READY = text("SELECT count(*) FROM jobqueue_jobs WHERE status = 'ready'")


class Load:
    """Producers in threads; `promises` is what each has been told about its jobs: mark, kind, fate."""

    def __init__(self, url: str, *, seed: int, producers: int = 2) -> None:
        self.promises: list[tuple[int, str, str]] = []
        self.faults: list[BaseException] = []
        self._engine = app.pool(url, size=producers + 1)
        self._marks = itertools.count(1)
        self._over = threading.Event()
        hands: list[Callable[[Random], None]] = [*[self._produce] * producers, self._operate]
        self._threads = [
            threading.Thread(target=self._repeat, args=(hand, Random(f"{seed} {number}")), name="load")
            for number, hand in enumerate(hands)
        ]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
            self._engine.dispose()

    def _repeat(self, act: Callable[[Random], None], chance: Random) -> None:
        """Again and again, through every outage; any other error is told."""
        while not self._over.is_set():
            try:
                act(chance)
            except BaseException as error:
                if not _is_outage(error):
                    self.faults.append(error)
                    return
                self._over.wait(0.1)

    def _produce(self, chance: Random) -> None:
        with self._engine.connect() as connection:
            if connection.execute(_READY).scalar_one() > BACKLOG:
                self._over.wait(0.02)
                return
        jobs = {next(self._marks): _kind(chance) for _ in range(chance.choice([1, 5, 20]))}
        way = chance.choice([self._commit, self._commit, self._commit_many, self._roll_back, self._savepoint])
        way(jobs, chance.random() < 0.7)

    def _commit(self, jobs: dict[int, str], keyed: bool) -> None:
        def add(session: Session) -> None:
            session.add_all(_jobs(jobs, keyed))

        self._until_known(jobs, keyed, add)

    def _commit_many(self, jobs: dict[int, str], keyed: bool) -> None:
        self._until_known(jobs, keyed, lambda session: enqueue_many(session.connection(), _jobs(jobs, keyed)))

    def _savepoint(self, jobs: dict[int, str], keyed: bool) -> None:
        """Half of them are rolled back, the others committed."""
        marks = list(jobs)
        lost = {mark: jobs.pop(mark) for mark in marks[: len(marks) // 2]}
        self._promise(lost, ROLLED_BACK)

        def add(session: Session) -> None:
            with session.begin_nested() as savepoint:
                session.add_all(_jobs(lost, keyed))
                session.flush()
                savepoint.rollback()
            session.add_all(_jobs(jobs, keyed))

        self._until_known(jobs, keyed, add)

    def _roll_back(self, jobs: dict[int, str], keyed: bool) -> None:
        self._promise(jobs, ROLLED_BACK)
        with Session(self._engine) as session:
            session.add_all(_jobs(jobs, keyed))
            session.flush()
            session.rollback()

    def _until_known(self, jobs: dict[int, str], keyed: bool, add: Callable[[Session], object]) -> None:
        """With keys the same is sent until it is known to be there; without, a lost answer to COMMIT stays unknown."""
        while True:
            committing = False
            try:
                with Session(self._engine) as session:
                    add(session)
                    session.flush()
                    committing = True
                    session.commit()
            except SQLAlchemyError as error:
                if keyed and _is_outage(error):
                    self._over.wait(0.1)
                    continue
                self._promise(jobs, UNKNOWN if committing else ROLLED_BACK)
                raise
            self._promise(jobs, COMMITTED)
            return

    def _promise(self, jobs: dict[int, str], fate: str) -> None:
        self.promises += [(mark, kind, fate) for mark, kind in jobs.items()]

    def _operate(self, chance: Random) -> None:
        """Cancel, redrive or prune a few, then rest for a moment."""
        with Session(self._engine) as session, session.begin():
            match chance.choice(["cancel", "redrive", "prune"]):
                case "cancel":
                    unfinished = "status IN ('ready', 'running') ORDER BY id DESC"
                    ids = _some(session, unfinished, chance.randrange(4))
                    session.execute(
                        text("INSERT INTO chaos_cancelled SELECT unnest(CAST(:ids AS bigint[]))"),
                        {"ids": ids},
                    )
                    cancel(session, ids)
                case "redrive":
                    redrive(session, _some(session, "status IN ('dead', 'cancelled')", chance.randrange(4)))
                case _:
                    old = timedelta(seconds=chance.choice([1, 5, 20]))
                    prune(session, status=JobStatus.DONE, older_than=old, limit=100)
        self._over.wait(0.1)


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, SQLAlchemyError) and not isinstance(error, MISTAKES)


def _jobs(marks: dict[int, str], keyed: bool) -> list[Job]:
    return [
        enqueue(_call(kind, mark), delay=_delay(mark), idempotency_key=f"mark {mark}" if keyed else None)
        for mark, kind in marks.items()
    ]


def _kind(chance: Random) -> str:
    kinds = {
        "effect": 30,
        "note": 15,
        "chain": 10,
        "flaky": 5,
        "nap": 5,
        "doomed": 1,
        "await": 25,
        "await.note": 9,
    }
    return chance.choices(list(kinds), list(kinds.values()))[0]


def _call(kind: str, mark: int) -> Any:
    # From the mark, so that the same job is the same when it is sent again; some outlive their lease.
    seconds = 3.0 if mark % 50 == 0 else mark % 10 / 20
    match kind:
        case "nap":
            return app.nap.call(mark=mark, seconds=seconds)
        case "await":
            return app.wait.call(mark=mark, seconds=seconds)
        case "await.note":
            return app.wait_and_return.call(mark=mark)
        case _:
            return getattr(app, kind).call(mark=mark)


def _delay(mark: int) -> timedelta | None:
    return timedelta(seconds=1) if mark % 20 == 0 else None


def _some(session: Session, where: str, count: int) -> list[int]:
    query = text(f"SELECT id FROM jobqueue_jobs WHERE {where} LIMIT {count}")
    return list(session.execute(query).scalars())
