"""The duty that prunes, on a real table: sweeps of small batches, what is told of them, and what is passed over."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, select, text

from sa_jobqueue.events import Event, JobsPruned, PruneRefused, Subscribers
from sa_jobqueue.maintenance import prune
from sa_jobqueue.maintenance.prune import PRUNE_LIMIT, Pruning
from sa_jobqueue.models import jobs
from sa_jobqueue.records import Pruned
from sa_jobqueue.retention import Retention
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.store import Store
from tests.support.jobs import add_job
from tests.support.waiting import wait_until

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
FAULT = "ForeignKeyViolation, SQLSTATE 23503, constraint documents_job_id_fkey"
MANY = """
    INSERT INTO jobqueue_jobs (kind, status, finished_at)
    SELECT 'test', :status, now() - CAST(:age AS interval) - make_interval(secs => i) FROM generate_series(1, :count) AS i
"""


def add_many(engine: Engine, status: str, count: int, *, age: timedelta = 4 * DAY) -> None:
    with engine.begin() as connection:
        connection.execute(text(MANY), {"status": status, "age": age, "count": count})


def refer(engine: Engine, status: str, count: int) -> None:
    """The oldest jobs of this status get rows of an application's that point at them."""
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS documents (job_id bigint UNIQUE REFERENCES jobqueue_jobs)")
        )
        connection.execute(
            text(
                "INSERT INTO documents SELECT id FROM jobqueue_jobs WHERE status = :status"
                " ORDER BY finished_at LIMIT :count ON CONFLICT DO NOTHING"
            ),
            {"status": status, "count": count},
        )


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        rows = connection.execute(select(jobs.c.status, func.count()).group_by(jobs.c.status))
        return dict(map(tuple, rows))


@pytest.fixture
def heard() -> list[Event]:
    """All events so far."""
    return []


@pytest.fixture
def make(store: Store, heard: list[Event]) -> Callable[..., Pruning]:
    """The duty of one runner, with the defaults unless a test says otherwise."""

    def make(retention: Retention | None = None, **more: Any) -> Pruning:
        subscribers = Subscribers([heard.append])
        return Pruning(
            store, retention=retention or Retention(), runner_id="r", subscribers=subscribers, **more
        )

    return make


def sweep(pruning: Pruning, *, most: int = 100) -> int:
    """One sweep; how many calls it took."""
    for calls in range(1, most):
        if not pruning.batch():
            return calls
    raise AssertionError("the sweep goes on without end")


def test_by_default_done_and_cancelled_go_after_three_days_and_dead_never(
    engine: Engine, make: Callable[..., Pruning], heard: list[Event]
) -> None:
    """What is not finished, or not for long enough, stays; each status that lost jobs is told once."""
    for status in ("done", "cancelled", "dead"):
        add_many(engine, status, 3)
        add_many(engine, status, 2, age=2 * DAY)
    add_job(engine, created_at=func.now() - 9 * DAY, run_at=func.now() - 9 * DAY)
    sweep(make())
    assert counts(engine) == {"done": 2, "cancelled": 2, "dead": 5, "ready": 1}
    assert heard == [
        JobsPruned(runner_id="r", status=JobStatus.DONE, count=3),
        JobsPruned(runner_id="r", status=JobStatus.CANCELLED, count=3),
    ]


def test_a_retention_of_its_own_for_each_status(engine: Engine, make: Callable[..., Pruning]) -> None:
    """For ever, for a while, or not at all."""
    for status in ("done", "cancelled", "dead"):
        add_many(engine, status, 3)
        add_many(engine, status, 2, age=HOUR)
    sweep(make(Retention(done=None, cancelled=2 * DAY, dead=timedelta(0))))
    assert counts(engine) == {"done": 5, "cancelled": 2}


def test_a_backlog_goes_in_batches(engine: Engine, make: Callable[..., Pruning], heard: list[Event]) -> None:
    """Each batch is bounded and durable by itself, and the next one follows when a rescue has had its turn."""
    add_many(engine, "done", 2 * PRUNE_LIMIT + 1)
    pruning = make()
    for left in (PRUNE_LIMIT + 1, 1):
        assert pruning.batch()
        assert counts(engine) == {"done": left}
        assert heard == []
    assert sweep(pruning) == 2  # the last job, and a look at the cancelled
    assert heard == [JobsPruned(runner_id="r", status=JobStatus.DONE, count=2 * PRUNE_LIMIT + 1)]


def test_a_sweep_with_nothing_to_do_is_one_call(make: Callable[..., Pruning], heard: list[Event]) -> None:
    """And nothing is told."""
    pruning = make()
    assert [sweep(pruning), sweep(pruning)] == [1, 1]
    assert sweep(make(Retention(done=None, cancelled=None))) == 1
    assert heard == []


def test_refused_jobs_are_told_once_and_stop_nobody(
    engine: Engine, make: Callable[..., Pruning], heard: list[Event]
) -> None:
    """An application points at the oldest jobs: the others go, and its constraint is named, not every minute."""
    add_many(engine, "done", 40)
    refer(engine, "done", 25)
    pruning = make()
    for _ in range(3):
        sweep(pruning)
    assert counts(engine) == {"done": 25}
    assert heard == [
        JobsPruned(runner_id="r", status=JobStatus.DONE, count=15),
        PruneRefused(runner_id="r", status=JobStatus.DONE, count=25, fault=FAULT),
    ]
    add_many(engine, "done", 2, age=3 * DAY)
    sweep(pruning)
    assert heard[2:] == [JobsPruned(runner_id="r", status=JobStatus.DONE, count=2)]


def test_refused_jobs_are_not_tried_in_every_sweep(
    engine: Engine, make: Callable[..., Pruning], heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are passed over for a number of sweeps, then tried again: whoever mends the cause sees them go."""
    monkeypatch.setattr(prune, "SWEEPS", 3)
    add_many(engine, "done", 5)
    refer(engine, "done", 5)
    pruning = make()
    sweep(pruning)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE documents"))
    for _ in range(2):
        sweep(pruning)
        assert counts(engine) == {"done": 5}
    sweep(pruning)
    assert counts(engine) == {}


def test_a_sweep_through_nothing_but_refusals_is_bounded(
    engine: Engine, make: Callable[..., Pruning], heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an application points at most jobs, a sweep ends after some, and the next ones get behind them all."""
    monkeypatch.setattr(prune, "REFUSED_LIMIT", 200)
    monkeypatch.setattr(prune, "PRUNE_LIMIT", 100)
    add_many(engine, "done", 450)
    refer(engine, "done", 450)
    add_many(engine, "done", 7, age=3 * DAY)
    pruning = make()
    for left in (457, 457, 450):
        assert sweep(pruning) <= 4
        assert counts(engine) == {"done": left}
    assert [type(event) for event in heard] == [PruneRefused, JobsPruned, PruneRefused]
    assert [event.count for event in heard if isinstance(event, PruneRefused)] == [200, 450]


def test_without_the_right_to_delete_all_else_goes_on(engine: Engine, heard: list[Event]) -> None:
    """A role from before there was a prune may only read and update: that is told once, and is no fault of the loop."""
    add_many(engine, "done", 30)
    role = f"limited_{secrets.token_hex(6)}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE ON jobqueue_jobs TO {role}"))
    limited = create_engine(engine.url, connect_args={"options": f"-c role={role}"})
    store = Store(limited, name="r")
    pruning = Pruning(store, retention=Retention(), runner_id="r", subscribers=Subscribers([heard.append]))
    for _ in range(2):
        sweep(pruning)
    store.close()
    limited.dispose()
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
    fault = "InsufficientPrivilege, SQLSTATE 42501"
    assert heard == [PruneRefused(runner_id="r", status=JobStatus.DONE, count=30, fault=fault)]
    assert counts(engine) == {"done": 30}


def test_a_locked_job_goes_with_the_next_sweep(engine: Engine, make: Callable[..., Pruning]) -> None:
    """It is skipped, not remembered."""
    add_many(engine, "done", 3)
    pruning = make()
    with engine.begin() as application:
        application.execute(select(jobs.c.id).order_by(jobs.c.id).limit(1).with_for_update())
        sweep(pruning)
        assert counts(engine) == {"done": 1}
    sweep(pruning)
    assert counts(engine) == {}


def test_a_lost_connection_costs_one_batch(
    engine: Engine, make: Callable[..., Pruning], store: Store
) -> None:
    """What was deleted stays so; the sweep goes on from there."""
    add_many(engine, "done", 2 * PRUNE_LIMIT)
    pruning = make()
    pruning.batch()
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    wait_until(lambda: _fails(pruning))
    assert counts(engine) == {"done": PRUNE_LIMIT}
    store.reset()
    sweep(pruning)
    assert counts(engine) == {}


def _fails(pruning: Pruning) -> bool:
    try:
        pruning.batch()
    except Exception:
        return True
    return False


def test_slow_batches_become_smaller(make: Callable[..., Pruning], monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign key without an index makes each delete read a table: a rescue must not wait for hundreds of them."""
    asked: list[int] = []
    seconds, now = iter([2.0, 2.0, 0.1, 0.1, 0.1, 0.1]), [0.0]

    def slow(_: Store, *, limit: int, **_more: Any) -> Pruned:
        asked.append(limit)
        now[0] += next(seconds)
        if len(asked) == 3:
            raise TimeoutError
        return Pruned(limit, more=True)

    monkeypatch.setattr(Store, "prune", slow)
    pruning = make(clock=lambda: now[0])
    for _ in range(6):
        _fails(pruning)
    assert asked == [500, 250, 125, 62, 124, 248]


def test_pages_that_others_hold_are_batches_too(
    make: Callable[..., Pruning], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of locked jobs deletes nothing, and there may be thousands: the other duties have their turn in between."""
    monkeypatch.setattr(Store, "prune", lambda _, **__: Pruned(0, more=True))
    pruning = make()
    assert [pruning.batch() for _ in range(3)] == [True] * 3
