"""Runners that say they wait: what the flag does, and what it tells them of others and of jobs to come."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, func, select, update

from sa_jobqueue.models import idle
from sa_jobqueue.records import Waiting
from sa_jobqueue.store.store import Store
from tests.support.hearing import listening
from tests.support.jobs import MINUTE, add_job, add_running
from tests.support.locks import in_thread, wait_for_a_lock

HOUR = timedelta(hours=1)


def wait(store: Store, *queues: str, wait: timedelta = HOUR, kinds: tuple[str, ...] = ("test",)) -> Waiting:
    return store.wait_for_jobs(queues=list(queues) or ["default"], kinds=kinds, wait=wait)


def flags(engine: Engine) -> dict[str, Any]:
    with engine.connect() as connection:
        rows = connection.execute(select(idle.c.runner_id, idle.c.waiting_until))
        return {row.runner_id: row.waiting_until for row in rows}


def ahead(**duration: float) -> Any:
    return func.now() + timedelta(**duration)


def test_the_flag_makes_an_insert_tell(engine: Engine, store: Store, database_url: str) -> None:
    """From the call on, until the other one: durable on return, seen by every other session."""
    with listening(database_url) as listener:
        add_job(engine)
        assert listener.heard() == []
        wait(store)
        add_job(engine)
        assert listener.heard() == [""]
        store.stop_waiting()
        add_job(engine)
        assert listener.heard() == []
    assert flags(engine) == {}


def test_others_are_those_who_wait_still(engine: Engine, store: Store, other: Store) -> None:
    """A runner learns how many would be woken with it; one whose time is over is none of them."""
    assert wait(store).others == 0
    assert wait(other).others == 1
    assert wait(store).others == 1
    with engine.begin() as connection:
        past = func.clock_timestamp() - timedelta(seconds=1)
        connection.execute(update(idle).where(idle.c.runner_id == "runner-1").values(waiting_until=past))
    assert wait(other).others == 0


def test_a_flag_is_written_again_when_half_its_time_is_over(engine: Engine, store: Store) -> None:
    """A runner that looks every 50 ms must not fill the table, which every INSERT reads, with dead rows."""
    wait(store)
    first = flags(engine)
    wait(store)
    assert flags(engine) == first
    wait(store, wait=4 * HOUR)
    (longer,) = flags(engine).values()
    assert longer > next(iter(first.values())) + 2 * HOUR
    with engine.begin() as connection:
        soon = func.clock_timestamp() + timedelta(minutes=29)
        connection.execute(update(idle).values(waiting_until=soon))
    wait(store)
    assert flags(engine).keys() == first.keys()
    assert min(flags(engine).values()) >= min(first.values())


def test_who_polls_often_writes_seldom(engine: Engine, store: Store) -> None:
    """A flag stands for a minute at least, whatever the poll interval: under an old snapshot every version is kept."""
    wait(store, wait=MINUTE / 1000)
    (first,) = flags(engine).values()
    with engine.connect() as connection:
        assert first > connection.execute(select(func.now() + 55 * MINUTE / 60)).scalar_one()
    wait(store, wait=MINUTE / 1000)
    assert list(flags(engine).values()) == [first]


def test_the_next_due_job(engine: Engine, store: Store) -> None:
    """The soonest of the runner's queues and kinds within the time, whatever its priority."""
    assert wait(store, "a", "b").next_due is None
    add_job(engine, queue="a", priority=0, run_at=ahead(minutes=30))
    add_job(engine, queue="b", priority=9, run_at=ahead(minutes=20))
    add_job(engine, queue="other", run_at=ahead(minutes=10))
    add_job(engine, queue="a", kind="other", run_at=ahead(minutes=10))
    add_job(engine, queue="a", run_at=ahead(minutes=70))
    found = wait(store, "a", "b").next_due
    assert found is not None
    assert timedelta(minutes=19) < found <= timedelta(minutes=20)
    found = wait(store, "a").next_due
    assert found is not None
    assert timedelta(minutes=29) < found <= timedelta(minutes=30)
    assert wait(store, "a", "b", wait=15 * MINUTE).next_due is None
    assert wait(store, "a", kinds=()).next_due is None


def test_what_is_due_or_not_ready_is_no_next_job(engine: Engine, store: Store, token: UUID) -> None:
    """What is due is a claim's business, even where no claim gets it: else a locked row would make a busy loop."""
    add_job(engine)
    add_running(engine, token, run_at=ahead(minutes=10))
    assert wait(store).next_due is None
    add_job(engine, run_at=func.to_timestamp(float("inf")))
    assert wait(store).next_due is None


def test_what_lost_runners_left_is_swept(engine: Engine, store: Store, other: Store) -> None:
    """Rows long past go with the next call of anybody, and a sweep waits for nobody's lock."""
    wait(other)
    with engine.begin() as connection:
        past = func.clock_timestamp() - 2 * HOUR
        connection.execute(update(idle).values(waiting_until=past))
    with engine.begin() as holder:
        holder.execute(select(idle).with_for_update())
        wait(store)
        assert flags(engine).keys() == {"runner-1", "runner-2"}
    wait(store)
    assert flags(engine).keys() == {"runner-1"}


def test_to_stop_waiting_twice(engine: Engine, store: Store) -> None:
    """There may be no row any more, after a crash of the server for one."""
    store.stop_waiting()
    wait(store)
    store.stop_waiting()
    store.stop_waiting()
    assert flags(engine) == {}


def test_two_stores_of_one_name(engine: Engine, store: Store) -> None:
    """The same row from two connections: the second waits for the first and leaves one row, of the later time."""
    twin = Store(engine, name="runner-1")
    wait(store, wait=MINUTE)
    with engine.begin() as holder:
        holder.execute(select(idle).with_for_update())
        thread, answers = in_thread(lambda: wait(twin))
        assert isinstance(thread, threading.Thread)
        wait_for_a_lock(engine)
    thread.join()
    assert answers == [Waiting(0, None)]
    (until,) = flags(engine).values()
    with engine.connect() as connection:
        assert until > connection.execute(select(func.now() + 50 * MINUTE)).scalar_one()
    twin.close()
