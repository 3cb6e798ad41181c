"""Every verb from every status, by a table written by hand; the table in the code must say the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, func

from sa_jobqueue import admin
from sa_jobqueue.records import ExpiredLease, Landing, NewJob, Settlement
from sa_jobqueue.states import TERMINAL, TRANSITIONS, Guard, JobStatus, Verb
from sa_jobqueue.store.inserts import insert_jobs
from sa_jobqueue.store.store import Store
from tests.support.jobs import MINUTE, add_job, add_running, keyed, read_job

NONE = timedelta(0)
EXHAUSTED = {"attempts": 5, "max_attempts": 5}
REQUESTED = {"cancel_requested_at": func.now()}
#: Verb, status before, what else is true of the job, status after. Every other pair of verb and status must do nothing.
LANDS: list[tuple[str, str, dict[str, Any], str]] = [
    ("claim", "ready", {}, "running"),
    ("renew", "running", {}, "running"),
    ("complete", "running", {}, "done"),
    ("complete", "running", REQUESTED, "done"),
    ("retry", "running", {}, "ready"),
    ("retry", "running", EXHAUSTED, "dead"),
    ("retry", "running", REQUESTED, "cancelled"),
    ("snooze", "running", {}, "ready"),
    ("snooze", "running", EXHAUSTED, "ready"),
    ("snooze", "running", REQUESTED, "cancelled"),
    ("discard", "running", {}, "dead"),
    ("discard", "running", REQUESTED, "cancelled"),
    ("release", "running", {}, "ready"),
    ("release", "running", EXHAUSTED, "ready"),
    ("release", "running", REQUESTED, "cancelled"),
    ("abort", "running", {}, "cancelled"),
    ("rescue", "running", {}, "ready"),
    ("rescue", "running", EXHAUSTED, "dead"),
    ("rescue", "running", EXHAUSTED | REQUESTED, "cancelled"),
    ("cancel", "ready", {}, "cancelled"),
    ("cancel", "running", {}, "running"),
    ("cancel", "running", REQUESTED, "running"),
    ("redrive", "dead", {}, "ready"),
    ("redrive", "cancelled", {}, "ready"),
    ("redrive", "cancelled", REQUESTED, "ready"),
    ("reschedule", "ready", {}, "ready"),
    ("replace", "ready", keyed("x", scope="row"), "ready"),
]
HANDLED_HERE = sorted({verb for verb, *_ in LANDS})
NOTHING = [
    (verb, status)
    for verb in HANDLED_HERE
    for status in ("ready", "running", "done", "dead", "cancelled")
    if not any(row[:2] == (verb, status) for row in LANDS)
]
#: The whole life of a job once more: verb, guard, statuses before, statuses after.
LIFE: dict[str, tuple[str, set[str], set[str]]] = {
    "enqueue": ("unique_key", set(), {"ready"}),
    "claim": ("due", {"ready"}, {"running"}),
    "renew": ("token", {"running"}, {"running"}),
    "complete": ("token and unexpired lease", {"running"}, {"done"}),
    "retry": ("token", {"running"}, {"ready", "dead", "cancelled"}),
    "snooze": ("token", {"running"}, {"ready", "cancelled"}),
    "discard": ("token", {"running"}, {"dead", "cancelled"}),
    "release": ("token", {"running"}, {"ready", "cancelled"}),
    "abort": ("token", {"running"}, {"cancelled"}),
    "rescue": ("expired lease", {"running"}, {"ready", "dead", "cancelled"}),
    "cancel": ("id", {"ready", "running"}, {"cancelled", "running"}),
    "redrive": ("id", {"dead", "cancelled"}, {"ready"}),
    "replace": ("unique_key", {"ready"}, {"ready"}),
    "reschedule": ("id", {"ready"}, {"ready"}),
    "prune": ("age", {"done", "dead", "cancelled"}, set()),
}

Apply = Callable[[Engine, Store, int, UUID], bool]


def claim(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
    claimed = store.claim(token=uuid4(), quotas={"default": 9}, kinds=["test"], lease=MINUTE)
    return [job.id for job in claimed] == [job_id]


def renew(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
    return store.renew([(job_id, token)], lease=MINUTE)[0].landing is Landing.LANDED


def rescue(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
    lease = ExpiredLease(job_id, token, "test", "default", 1, 0, 5, "holder")
    # A margin below zero makes every lease look past.
    return bool(store.rescue([(lease, NONE)], margin=-timedelta(days=1)))


def replace(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
    new_job = NewJob(kind="new", payload="{}", idempotency_key="x", key_scope="row", on_conflict="replace")
    with engine.connect() as connection:
        answer = insert_jobs(connection, [new_job])[0]
        if answer.outcome == "replaced":
            connection.commit()
        return answer.outcome == "replaced"


def by_a_person(verb: Callable[..., list[admin.OperatorResult]], **given: Any) -> Apply:
    def act(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
        with engine.begin() as connection:
            return verb(connection, [job_id], **given)[0].landed

    return act


def settling(verb: Verb) -> Apply:
    def settle(engine: Engine, store: Store, job_id: int, token: UUID) -> bool:
        return store.settle([Settlement(job_id, token, verb)])[0].landing is Landing.LANDED

    return settle


APPLY: dict[str, Apply] = {
    "claim": claim,
    "renew": renew,
    "rescue": rescue,
    "cancel": by_a_person(admin.cancel),
    "redrive": by_a_person(admin.redrive),
    "replace": replace,
    "reschedule": by_a_person(admin.reschedule, priority=0),
    **{verb: settling(Verb(verb)) for verb in ("complete", "retry", "snooze", "discard", "release", "abort")},
}


def job_in(engine: Engine, status: str, token: UUID, columns: dict[str, Any]) -> int:
    """A job in this status that `token` holds, or was the last to hold."""
    if status == "running":
        return add_running(engine, token, **columns)
    finished = {} if status == "ready" else {"finished_at": func.now()}
    return add_job(engine, status=status, attempts=1, settled_token=token, **finished, **columns)


@pytest.mark.parametrize(("verb", "status", "columns", "after"), LANDS)
def test_a_verb_lands(
    engine: Engine, store: Store, token: UUID, verb: str, status: str, columns: dict[str, Any], after: str
) -> None:
    """From where a verb may lead, it leads to the one status that the job's state decides; a runner's token stays on it."""
    job_id = job_in(engine, status, token, columns)
    before = read_job(engine, job_id)
    assert APPLY[verb](engine, store, job_id, token)
    row = read_job(engine, job_id)
    assert row.status == after
    settles = verb in {"complete", "retry", "snooze", "discard", "release", "abort"}
    assert row.settled_token == (token if settles else before.settled_token)


@pytest.mark.parametrize(("verb", "status"), NOTHING)
def test_a_verb_does_nothing(engine: Engine, store: Store, token: UUID, verb: str, status: str) -> None:
    """From anywhere else it changes nothing at all, and says so; no verb whatever leads out of done."""
    job_id = job_in(engine, status, token, {})
    before = read_job(engine, job_id)
    assert not APPLY[verb](engine, store, job_id, token)
    assert read_job(engine, job_id) == before


def test_the_tables_agree() -> None:
    """The transitions in the code, from which guards and documentation are made, are those of the table by hand."""
    coded = {
        verb: (transition.guard, set(transition.sources), set(transition.targets))
        for verb, transition in TRANSITIONS.items()
    }
    assert coded == LIFE
    # All others may lead from each of their sources to each of their targets.
    assert set(TRANSITIONS[Verb.CANCEL].moves) == {("ready", "cancelled"), ("running", "running")}
    assert all(
        len(transition.moves) == max(1, len(transition.sources)) * max(1, len(transition.targets))
        for verb, transition in TRANSITIONS.items()
        if verb is not Verb.CANCEL
    )
    assert set(Verb) == set(LIFE)
    assert {guard for guard, *_ in LIFE.values()} == set(Guard)
    landing = {
        verb: ({row[1] for row in LANDS if row[0] == verb}, {row[3] for row in LANDS if row[0] == verb})
        for verb in HANDLED_HERE
    }
    assert landing == {verb: LIFE[verb][1:] for verb in HANDLED_HERE}


def test_done_has_no_way_out() -> None:
    """Nothing but age leads out of done, whoever asks."""
    leaving = {verb for verb, (_, sources, _) in LIFE.items() if "done" in sources}
    assert leaving == {"prune"}
    assert set(TERMINAL) == LIFE["prune"][1] == set(JobStatus) - {"ready", "running"}
