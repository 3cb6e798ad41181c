"""A hot runner beside transactions that commit, roll back and die: it sees committed work, and only that."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, Executable, ForeignKey, create_engine, event, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sa_jobqueue import Job, Registry, enqueue, enqueue_many, ref
from sa_jobqueue.events import JobSettled
from tests.entry.conftest import Client
from tests.entry.savepoints import in_savepoints
from tests.support.hearing import listening
from tests.support.runners import running
from tests.support.waiting import wait_until

ROUNDS = 500


class Base(DeclarativeBase):
    """The application's own."""


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))


class Shop:
    """An application whose handler looks for the order of its job."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.found: list[int] = []
        self.missing: list[int] = []
        self.jobs = Registry()
        self.jobs.handler("order.pay")(self.pay)

    def pay(self, order_id: int) -> None:
        with Session(self.engine) as session:
            order = session.get(Order, order_id)
        (self.missing if order is None else self.found).append(order_id)

    def orders(self) -> set[int]:
        with Session(self.engine) as session:
            return set(session.scalars(select(Order.id)))

    def job_count(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM jobqueue_jobs")).scalar_one())


@pytest.fixture
def shop(engine: Engine) -> Shop:
    Base.metadata.create_all(engine, tables=[Order.__table__])  # type: ignore[list-item]
    return Shop(engine)


def _committed(round_: int) -> bool:
    return round_ % 5 != 0


def _check(shop: Shop, endings: list[str]) -> None:
    """Every committed order was paid once, nothing else exists, and the producer ended each transaction itself."""
    expected = {round_ for round_ in range(1, ROUNDS + 1) if _committed(round_)}
    wait_until(lambda: len(shop.found) >= len(expected), what="all orders")
    assert shop.missing == []
    assert sorted(shop.found) == sorted(expected) == sorted(shop.orders())
    assert shop.job_count() == len(expected)
    assert endings == ["commit" if _committed(round_) else "rollback" for round_ in range(1, ROUNDS + 1)]


def _linger(generator: random.Random) -> Executable:
    """The race itself: the row is flushed and not committed for up to 50 ms, mostly short, and the runner polls meanwhile."""
    return select(func.pg_sleep(generator.random() ** 8 * 0.05))


def _ends(engine: Engine) -> list[str]:
    """Every COMMIT and ROLLBACK that the engine is asked for, and savepoints, of which there are none."""
    endings: list[str] = []
    for name in ("commit", "rollback", "savepoint"):
        event.listen(engine, name, lambda *_, name=name: endings.append(name))
    return endings


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_session_never_shows_a_runner_work_that_is_not_committed(
    shop: Shop, database_url: str, driver: str
) -> None:
    """Jobs of committed transactions run, those of rolled-back ones never existed; the library ends none itself."""
    generator = random.Random(7)
    producer = create_engine(database_url.replace("+psycopg", f"+{driver}"))
    endings = _ends(producer)
    with running(shop.jobs, database_url):
        for round_ in range(1, ROUNDS + 1):
            with Session(producer) as session:
                order = Order(id=round_)
                session.add_all([order, enqueue("order.pay", {"order_id": ref(order)})])
                session.flush()
                session.execute(_linger(generator))
                if _committed(round_):
                    session.commit()
                else:
                    session.rollback()
        _check(shop, endings)
    producer.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_async_session_never_shows_a_runner_work_that_is_not_committed(
    shop: Shop, database_url: str, driver: str
) -> None:
    """The same through AsyncSession, on both drivers."""
    generator = random.Random(8)

    async def produce() -> None:
        engine = create_async_engine(database_url.replace("+psycopg", f"+{driver}"))
        endings = _ends(engine.sync_engine)
        for round_ in range(1, ROUNDS + 1):
            async with AsyncSession(engine) as session:
                session.add_all([Order(id=round_), enqueue("order.pay", {"order_id": round_})])
                await session.flush()
                await session.execute(_linger(generator))
                await (session.commit() if _committed(round_) else session.rollback())
        await engine.dispose()
        _check(shop, endings)

    with running(shop.jobs, database_url):
        asyncio.run(produce())


def test_a_core_connection_never_shows_a_runner_work_that_is_not_committed(
    shop: Shop, database_url: str
) -> None:
    """The same through enqueue_many on a Core connection."""
    generator = random.Random(9)
    producer = create_engine(database_url)
    endings = _ends(producer)
    with running(shop.jobs, database_url), producer.connect() as connection:
        for round_ in range(1, ROUNDS + 1):
            connection.execute(insert(Order).values(id=round_))
            enqueue_many(connection, [enqueue("order.pay", {"order_id": round_})])
            connection.execute(_linger(generator))
            if _committed(round_):
                connection.commit()
            else:
                connection.rollback()
        _check(shop, endings)
    producer.dispose()


def test_an_async_core_connection_never_shows_a_runner_work_that_is_not_committed(
    shop: Shop, database_url: str
) -> None:
    """The same on an AsyncConnection over asyncpg."""
    generator = random.Random(10)

    async def produce() -> None:
        engine = create_async_engine(database_url.replace("+psycopg", "+asyncpg"))
        endings = _ends(engine.sync_engine)
        async with engine.connect() as connection:
            for round_ in range(1, ROUNDS + 1):
                await connection.execute(insert(Order).values(id=round_))
                await enqueue_many(connection, [enqueue("order.pay", {"order_id": round_})])
                await connection.execute(_linger(generator))
                await (connection.commit() if _committed(round_) else connection.rollback())
        await engine.dispose()
        _check(shop, endings)

    with running(shop.jobs, database_url):
        asyncio.run(produce())


@pytest.mark.parametrize("kind", ["sync", "psycopg2", "psycopg", "asyncpg"])
def test_savepoints_wake_nobody_before_the_commit(engine: Engine, database_url: str, kind: str) -> None:
    """Neither their release nor their rollback is told to anybody; what was undone can come in later and runs then."""
    registry = Registry()
    ran: list[str] = []
    for name in ("job1", "job2", "job3", "job4"):
        registry.handler(name)(partial(ran.append, name))
    first, second, third, fourth = (enqueue(f"job{number}") for number in range(1, 5))
    client = Client(kind, database_url)

    def work(session: Session) -> None:
        in_savepoints(session, first, second, third, fourth)
        session.flush()
        assert listener.heard() == []
        # A commit behind it is heard and looked for, and nothing else is found.
        with Session(engine) as other, other.begin():
            other.add(enqueue("job2", {}, idempotency_key="beside"))
        recorder.wait_for(JobSettled, count=1)
        assert listener.heard() == [""]
        assert ran == ["job2"]

    never = timedelta(hours=1)
    with (
        listening(database_url) as listener,
        running(registry, database_url, poll_interval=never) as recorder,
    ):
        wait_until(lambda: _waiting(engine), what="a runner that waits")
        client.run(work)
        recorder.wait_for(JobSettled, count=3)
        assert sorted(ran) == ["job2", "job2", "job3"]
        assert listener.heard() == [""]
        wait_until(lambda: _waiting(engine), what="a runner that waits")
        client.run(lambda session: session.add_all([first, fourth]))
        recorder.wait_for(JobSettled, count=5)
    assert sorted(ran) == ["job1", "job2", "job2", "job3", "job4"]


def _waiting(engine: Engine) -> bool:
    with engine.connect() as connection:
        query = "SELECT count(*) FROM jobqueue_idle WHERE waiting_until > clock_timestamp()"
        return bool(connection.execute(text(query)).scalar_one())


def _fail_before_commit(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.add(enqueue("order.pay", {"order_id": 1}))
        session.flush()
        raise RuntimeError("between flush and commit")


def test_an_error_between_flush_and_commit_leaves_no_job(shop: Shop) -> None:
    """Whatever ends the transaction early takes the job with it."""
    with pytest.raises(RuntimeError):
        _fail_before_commit(shop.engine)
    with Session(shop.engine) as session:
        session.add(enqueue("order.pay", {"order_id": 1}))
        session.flush()  # closed without a commit
    assert shop.job_count() == 0


def test_a_killed_client_leaves_no_job(shop: Shop, database_url: str) -> None:
    """SIGKILL before the commit: the server rolls back, and no runner ever saw the job."""
    script = (
        "import os, signal, sys\n"
        "from sqlalchemy import create_engine\n"
        "from sqlalchemy.orm import Session\n"
        "from sa_jobqueue import enqueue\n"
        "session = Session(create_engine(sys.argv[1]))\n"
        "session.add(enqueue('order.pay', {'order_id': 1}))\n"
        "session.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with running(shop.jobs, database_url) as recorder:
        killed = subprocess.run([sys.executable, "-c", script, database_url], check=False)
        assert killed.returncode == -9
        with Session(shop.engine) as session, session.begin():
            session.add_all([Order(id=2), enqueue("order.pay", {"order_id": 2})])
        recorder.wait_for(JobSettled)
    assert shop.found == [2]
    assert shop.job_count() == 1
