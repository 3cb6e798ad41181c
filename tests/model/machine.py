"""What runners, people, maintenance and a bad network may do, in any order, on the real store and on the model.

All arguments are small numbers, so that what Hypothesis prints of a failure is a program that can be run again. Which row
a number means depends on the rule: those that it is about come first. Comments in capitals name the invariants that a
history may break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.orm import Session

from sa_jobqueue import admin, enqueue, enqueue_many, records
from sa_jobqueue.models import jobs
from sa_jobqueue.payloads import encode
from sa_jobqueue.records import ExpiredLease, Landing, NewJob, Progress
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.fencing import is_in_force, send_fence
from sa_jobqueue.store.inserts import insert_jobs
from sa_jobqueue.store.leases import Store
from tests.model.clock import MINUTE, START, move, reset
from tests.model.model import TARGETS, TERMINAL, Answer, Job, Lock, Model, Settlement

#: Of an id and of a token that nobody has.
NO_JOB, NOBODY = 10**6, UUID(int=2**127)
RUNNER, OTHER_RUNNER = "runner-1", "runner-2"
MOST_JOBS = 6

ROW = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 4, 9])
#: How many claims of the job ago; 9 is nobody's.
AGE = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 9])
KEY = st.tuples(ROW, AGE)
KEYS = st.lists(KEY, min_size=1, max_size=3)
ROWS = st.lists(ROW, min_size=1, max_size=3)
MINUTES = st.sampled_from([0, 1, 2, 5])
LEASES = st.sampled_from([1, 2, 5])
TEXTS = st.sampled_from([None, "a", "b"])
OUTCOME = st.tuples(
    ROW, AGE, st.sampled_from(list(TARGETS)), st.sampled_from([None, 0, 2, 5]), TEXTS
)
OUTCOMES = st.lists(OUTCOME, min_size=1, max_size=3)
NEW_JOB = st.tuples(
    st.sampled_from("ab"),  # kind
    st.sampled_from("pq"),  # queue
    st.sampled_from([0, 5, 5, 9]),  # priority
    st.sampled_from([None, None, -1, 0, 2]),  # due, in minutes from now
    st.sampled_from([None, None, None, 3, 6]),  # expires, in minutes from now
    st.sampled_from([1, 2, 2, 3]),  # max_attempts
    st.sampled_from([None, "x", "y"]),  # key
)
QUOTAS = st.tuples(st.integers(0, 2), st.integers(0, 2))
LANDINGS = {
    "landed": Landing.LANDED,
    "done": Landing.LANDED,
    "busy": Landing.BUSY,
    "expired": Landing.EXPIRED,
    "lost": Landing.LOST,
    "unknown": Landing.LOST,
    "gone": Landing.GONE,
}


class Doubt(NamedTuple):
    """A settlement whose answer was lost, and whether it may still land."""

    one: Settlement
    on_its_way: bool


class Ground:
    """The connections that one example after another uses: a runner's, a person's, and one for transactions."""

    def __init__(self, engine: Engine) -> None:
        self.store = Store(engine, name=RUNNER)
        self.person = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.other: Connection = engine.connect()
        #: Verbs that did something, over all examples.
        self.reached: Counter[str] = Counter()

    def close(self) -> None:
        self.store.close()
        self.person.close()
        self.other.close()


class Machine(RuleBasedStateMachine):
    """One history. `ground` is set for all of them."""

    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self.ground.other.rollback()
        reset(self.ground.person)
        self.store, self.person, self.other = self.ground.store, self.ground.person, self.ground.other
        self.inner = Store(self.other, name=OTHER_RUNNER)
        self.model = Model(START)
        self.rows: dict[int, dict[str, Any]] = {}
        self.ids: list[int] = []
        self.tokens: dict[int, list[UUID]] = {}
        self.claims = 0
        self.lost_claims: list[UUID] = []
        self.doubts: list[Doubt] = []
        self.leases: list[ExpiredLease] = []
        self.fenced: list[tuple[tuple[int, UUID], int]] = []

    def teardown(self) -> None:
        self.other.rollback()

    # --- time

    @rule(minutes=st.sampled_from([1, 1, 2, 5]))
    def time_passes(self, minutes: int) -> None:
        self.model.now += minutes * MINUTE
        move(self.person, self.model.now)

    # --- entry

    @precondition(lambda self: len(self.ids) < MOST_JOBS)
    @rule(wanted=st.lists(NEW_JOB, min_size=1, max_size=3), by_session=st.booleans())
    def enqueue(self, wanted: list[tuple[Any, ...]], by_session: bool) -> None:
        now = self.model.now
        new = [
            enqueue(
                kind,
                {"n": number},
                queue=queue,
                priority=priority,
                # In the past as a time, in the future as a delay, which the server adds to its own time.
                run_at=now + due * MINUTE if due is not None and due < 0 else None,
                delay=due * MINUTE if due is not None and due >= 0 else None,
                expires_at=None if expires is None else now + expires * MINUTE,
                max_attempts=attempts,
                idempotency_key=key,
            )
            for number, (kind, queue, priority, due, expires, attempts, key) in enumerate(wanted)
        ]
        if by_session:
            with Session(self.person) as session, session.begin():
                session.add_all(new)
            answers = [job.enqueued for job in new]
        else:
            answers = enqueue_many(self.person, new)
        assert None not in answers
        self._entered(wanted, [(answer.id, answer.created) for answer in answers if answer], "row")

    @precondition(lambda self: len(self.ids) < MOST_JOBS)
    @rule(wanted=NEW_JOB, key=st.sampled_from("xy"))
    def enqueue_unfinished(self, wanted: tuple[Any, ...], key: str) -> None:
        wanted = (*wanted[:-1], key)
        kind, queue, priority, due, expires, attempts, _ = wanted
        now = self.model.now
        new = NewJob(
            kind=kind,
            payload=encode({"n": 0}),
            queue=queue,
            priority=priority,
            max_attempts=attempts,
            run_at=None if due is None else now + due * MINUTE,
            expires_at=None if expires is None else now + expires * MINUTE,
            idempotency_key=key,
            key_scope="unfinished",
        )
        answers = insert_jobs(self.person, [new])
        self._entered([wanted], [(answer.id, answer.created) for answer in answers], "unfinished")

    def _entered(
        self, wanted: Sequence[tuple[Any, ...]], answers: Sequence[tuple[int, bool]], scope: str
    ) -> None:
        keyed, free = [], []
        for number, (columns, (job_id, created)) in enumerate(zip(wanted, answers, strict=True)):
            kind, queue, priority, due, expires, attempts, key = columns
            if (holder := self.model.holder(key)) is not None:
                assert (job_id, created) == (holder, False)
                continue
            assert created
            assert job_id not in self.ids
            now = self.model.now
            self.model.enqueue(
                job_id,
                key=key,
                scope=scope,
                kind=kind,
                queue=queue,
                payload={"n": number},
                priority=priority,
                run_at=now if due is None else now + due * MINUTE,
                expires_at=None if expires is None else now + expires * MINUTE,
                max_attempts=attempts,
            )
            self._reach("enqueue")
            (free if key is None else keyed).append((key, job_id))
        # Keyed ones get the lower ids, in the order of their keys; the others follow as they were added.
        ids = [job_id for _, job_id in sorted(keyed)] + [job_id for _, job_id in free]
        assert ids == sorted(ids)
        self.ids += ids

    # --- claims

    @rule(quotas=QUOTAS, kinds=st.sampled_from(["ab", "ab", "a"]), lease=LEASES, answered=st.booleans())
    def claim(self, quotas: tuple[int, int], kinds: str, lease: int, answered: bool) -> None:
        token = self._claim(self.store, RUNNER, quotas, kinds, lease)
        if not answered:
            self.lost_claims.append(token)

    def _claim(self, store: Store, runner: str, quotas: tuple[int, int], kinds: str, lease: int) -> UUID:
        self.claims += 1
        token = UUID(int=self.claims)
        terms: dict[str, Any] = {
            "quotas": dict(zip("pq", quotas, strict=True)),
            "kinds": list(kinds),
            "lease": lease * MINUTE,
        }
        answers = store.claim(token=token, **terms)
        expected = self.model.claim(token, *terms.values(), runner)
        assert [_told(job, self.model) for job in expected] == [job._asdict() for job in answers]
        for job in expected:
            assert job.attempt <= job.max_attempts, "BUDGET"
            self.tokens.setdefault(job.id, []).append(token)
            self._reach("claim")
        return token

    @precondition(lambda self: self.lost_claims)
    @rule(which=st.integers(0, 3))
    def release_claim(self, which: int) -> None:
        token = self.lost_claims[which % len(self.lost_claims)]
        expected = self.model.release_claim(token)
        assert self.store.release_claim(token=token) == expected
        self._reach("release_claim", expected)

    # --- what a runner holds

    @rule(keys=KEYS, lease=LEASES)
    def renew(self, keys: list[tuple[int, int]], lease: int) -> None:
        self._renew(self.store, self._keys(keys), lease)

    def _renew(self, store: Store, held: list[tuple[int, UUID]], lease: int) -> None:
        answers = store.renew(held, lease=lease * MINUTE)
        self._check_held("renew", held, [self.model.renew(key, lease * MINUTE) for key in held], answers)

    @rule(keys=KEYS, tenths=st.sampled_from([None, 5]), said=TEXTS)
    def report(self, keys: list[tuple[int, int]], tenths: int | None, said: str | None) -> None:
        held, fraction = self._keys(keys), None if tenths is None else tenths / 10
        answers = self.store.report([(key, Progress(fraction, said)) for key in held])
        self._check_held("report", held, [self.model.report(key, fraction, said) for key in held], answers)

    def _check_held(
        self,
        verb: str,
        held: Sequence[tuple[int, UUID]],
        requested: Sequence[bool | None],
        answers: Sequence[records.Renewed],
    ) -> None:
        for key, request, answer in zip(held, requested, answers, strict=True):
            word = (
                "landed" if request is not None else self.model.why_not(Settlement(*key, verb)).word
            )
            assert answer == records.Renewed(*key, LANDINGS[word], bool(request)), word
            self._reach(f"{verb}: {word}")

    @rule(
        outcomes=OUTCOMES,
        fate=st.sampled_from(["answered", "answered", "answered", "lost", "never", "late"]),
    )
    def settle(self, outcomes: list[tuple[Any, ...]], fate: str) -> None:
        batch = self._settlements(outcomes)
        if fate in ("answered", "lost"):
            self._settle(self.store, batch)
        if fate != "answered":
            self.doubts += [Doubt(one, fate == "late") for one in batch]

    @precondition(lambda self: any(doubt.on_its_way for doubt in self.doubts))
    @rule(which=st.integers(0, 3))
    def lands_late(self, which: int) -> None:
        """The statement of a connection that was given up: it does what it can, and nobody hears of it."""
        late = [place for place, doubt in enumerate(self.doubts) if doubt.on_its_way]
        place = late[which % len(late)]
        one = self.doubts[place].one
        self.doubts[place] = Doubt(one, False)
        self._settle(self.store, [one])

    @precondition(lambda self: self.doubts)
    @rule(which=st.integers(0, 5))
    def settle_again(self, which: int) -> None:
        one = self.doubts[which % len(self.doubts)].one
        (answer,) = self._settle(self.store, [one], again=True)
        if answer.word == "done":
            assert self.model.landed[one[:2]].word == "complete", "FALSE-DONE"
        if answer.word == "lost" and one.verb == "complete":
            assert self.model.landed[one[:2]].word != "complete", "FALSE-LOST"

    def _settle(self, store: Store, batch: list[Settlement], *, again: bool = False) -> list[Answer]:
        answers = store.settle([_sent(one) for one in batch], again=again)
        expected = self.model.settle(batch, again=again)
        for one, answer, wanted in zip(batch, answers, expected, strict=True):
            shown = answer._replace(status=None)
            completed = wanted.word == "done" and one.verb != "complete"
            assert shown == records.Settled(*one[:2], LANDINGS[wanted.word], completed=completed), wanted
            self._check_status(one, answer.status, wanted, again=again)
            self._reach(f"{one.verb}: {wanted.word}" if wanted.word in ("landed", "done") else wanted.word)
        return expected

    def _check_status(
        self, one: Settlement, status: JobStatus | None, wanted: Answer, *, again: bool
    ) -> None:
        """The status that the write gave; after a lost answer as far as the row still knows it."""
        known = wanted.status
        if again and wanted.word == "landed" and self.model.jobs[one.id].status != known:
            assert status in TARGETS[one.verb]
        else:
            assert status == known

    # --- maintenance

    @rule(margin=st.sampled_from([0, 0, 1, 2]), limit=st.sampled_from([1, 9]))
    def look_for_expired(self, margin: int, limit: int) -> None:
        self.leases = self.store.expired_leases(lease=MINUTE, margin=margin * MINUTE, limit=limit)
        assert [asdict(lease) for lease in self.leases] == [
            {
                "id": job.id,
                "token": job.lease_token,
                **{name: getattr(job, name) for name in ("kind", "queue", "attempts", "returned")},
                **{name: getattr(job, name) for name in ("max_attempts", "leased_by")},
            }
            for job in self.model.expired(margin * MINUTE, limit)
        ]

    @precondition(lambda self: self.leases)
    @rule(delay=MINUTES, margin=st.sampled_from([0, 0, 1, 2]))
    def rescue(self, delay: int, margin: int) -> None:
        """Of those that were found, however long ago that was."""
        answers = self.store.rescue(
            [(lease, delay * MINUTE) for lease in self.leases], margin=margin * MINUTE
        )
        expected = {}
        for lease in self.leases:
            key = (lease.id, lease.token)
            if (status := self.model.rescue(key, delay * MINUTE, margin * MINUTE)) is not None:
                expected[lease.id] = (status, lease.counted_attempts)
                self._reach(f"rescue: {status}")
        assert {answer.id: (answer.status, answer.attempt) for answer in answers} == expected

    @rule(
        status=st.sampled_from(TERMINAL),
        age=st.sampled_from([0, 2]),
        limit=st.sampled_from([1, 9]),
        by_person=st.booleans(),
    )
    def prune(self, status: str, age: int, limit: int, by_person: bool) -> None:
        before = set(self._read())
        may = self.model.prunable(status, age * MINUTE)
        if by_person:
            answer = admin.prune(
                self.person, status=JobStatus(status), older_than=age * MINUTE, limit=limit
            )
        else:
            answer = self.store.prune(status=JobStatus(status), age=age * MINUTE, limit=limit)
        gone = before - set(self._read())
        # Of those that finished at the same time any may go first.
        times = [job.finished_at for job in may][:limit]
        assert sorted(job.finished_at for job in may if job.id in gone) == times  # type: ignore[type-var]
        assert gone <= {job.id for job in may}
        assert (answer.count, answer.refused) == (len(times), 0)
        for job_id in gone:
            del self.model.jobs[job_id]
        self._reach("prune", len(gone))

    # --- people

    @rule(rows=ROWS)
    def cancel(self, rows: list[int]) -> None:
        ids = self._unlocked(self._rows(rows, "running", "ready"))
        expected = [self.model.cancel(job_id) for job_id in ids]
        answers = admin.cancel(self.person, ids)
        assert [(answer.landed, answer.status) for answer in answers] == expected
        self._reach_all("cancel", expected)

    @rule(rows=ROWS)
    def redrive(self, rows: list[int]) -> None:
        ids = self._unlocked(self._rows(rows, "dead", "cancelled"))
        # Who takes a key waits for a transaction that is about to let it go.
        ids = [job_id for job_id in ids if not self._key_is_locked(job_id)]
        expected = [self.model.redrive(job_id) for job_id in ids]
        answers = admin.redrive(self.person, ids)
        assert [(answer.landed, answer.status, answer.reason) for answer in answers] == expected
        self._reach_all("redrive", expected)

    @rule(
        rows=ROWS,
        due=st.sampled_from([None, -1, 0, 2]),
        relative=st.booleans(),
        priority=st.sampled_from([None, 0, 9]),
    )
    def reschedule(self, rows: list[int], due: int | None, relative: bool, priority: int | None) -> None:
        if due is None and priority is None:
            return
        ids = self._unlocked(self._rows(rows, "ready"))
        run_at = None if due is None else self.model.now + due * MINUTE
        expected = [self.model.reschedule(job_id, run_at=run_at, priority=priority) for job_id in ids]
        times: dict[str, Any] = {"run_at": run_at}
        if relative and due is not None and due >= 0:
            times = {"delay": due * MINUTE}
        answers = admin.reschedule(self.person, ids, priority=priority, **times)
        assert [(answer.landed, answer.status) for answer in answers] == expected
        self._reach_all("reschedule", expected)

    # --- another transaction: somebody's lock, a statement in flight, a completion in the handler's own

    @rule()
    def begin(self) -> None:
        """So that its start is before what it does."""
        self.other.execute(text("SELECT 1"))

    @rule(rows=ROWS, strength=st.sampled_from(["row", "key share"]))
    def lock(self, rows: list[int], strength: Lock) -> None:
        lock = "NO KEY UPDATE" if strength == "row" else "KEY SHARE"
        for job_id in self._rows(rows, "running", "ready"):
            self.other.execute(text(f"SELECT FROM jobqueue_jobs WHERE id = {job_id} FOR {lock}"))
            self.model.lock(job_id, strength)

    @rule(outcomes=OUTCOMES)
    def settle_in_flight(self, outcomes: list[tuple[Any, ...]]) -> None:
        batch = self._settlements(outcomes)
        with self.model.inside():
            self._settle(self.inner, batch)
        self.doubts += [Doubt(one, False) for one in batch]

    @rule(quotas=QUOTAS, lease=LEASES)
    def claim_in_flight(self, quotas: tuple[int, int], lease: int) -> None:
        with self.model.inside():
            self.lost_claims.append(self._claim(self.inner, OTHER_RUNNER, quotas, "ab", lease))

    @rule(keys=KEYS, lease=LEASES)
    def renew_in_flight(self, keys: list[tuple[int, int]], lease: int) -> None:
        with self.model.inside():
            self._renew(self.inner, self._keys(keys), lease)

    @rule(key=KEY, result=TEXTS, lease=LEASES)
    def fence(self, key: tuple[int, int], result: str | None, lease: int) -> None:
        (key_,) = self._keys([key])
        with self.model.inside():
            answer = send_fence(
                self.other,
                key_,
                result=None if result is None else encode(result),
                lease=timedelta(days=lease),
            )
            one = Settlement(*key_, "complete", result=result)
            word = "landed" if self.model.complete(one) else self.model.why_not(one).word
            assert answer.landing is LANDINGS[word]
            assert (answer.xid is not None) is (word == "landed")
            self._reach(f"fence: {word}")
        if answer.xid is not None:
            self.fenced.append((key_, answer.xid))
            self.model.fates[answer.xid] = "in progress"
            # What a handler does after such a block is a retry; its own connection may have been lost at the COMMIT.
            self.doubts.append(Doubt(Settlement(*key_, "retry", error="in doubt", xid=answer.xid), False))

    @rule(commit=st.sampled_from([True, True, False]))
    def end(self, commit: bool) -> None:
        for key, xid in self.fenced:
            assert is_in_force(self.other, key)
            self.model.fates[xid] = "committed" if commit else "aborted"
        if commit:
            self.other.commit()
        else:
            self.other.rollback()
        self.model.end(commit=commit)
        self.fenced = []

    # --- what must hold after every step

    @invariant()
    def the_rows_are_the_models(self) -> None:
        before, self.rows = self.rows, self._read()
        expected = {job_id: _columns(job) for job_id, job in self.model.jobs.items()}
        if self.rows != expected:
            pytest.fail("\n".join(_differences(self.rows, expected)))
        for row in self.rows.values():
            _check_row(row)
            if (old := before.get(row["id"])) is not None:
                _check_change(old, row)
        held = [row["unique_key"] for row in self.rows.values() if row["unique_key"] is not None]
        assert len(held) == len(set(held)), "one holder for each key"

    # --- pieces

    def _read(self) -> dict[int, dict[str, Any]]:
        rows = self.person.execute(select(jobs)).mappings()
        return {row["id"]: {**row, "errors": tuple(row["errors"])} for row in rows}

    def _rows(self, numbers: Iterable[int], *statuses: str) -> list[int]:
        """Ids, each once: those of these statuses first, then all others, then one that nobody has."""

        def rank(job_id: int) -> tuple[bool, int]:
            job = self.model.jobs.get(job_id)
            return job is None or job.status not in statuses, job_id

        ids = sorted(self.ids, key=rank)
        return list(dict.fromkeys(ids[number] if number < len(ids) else NO_JOB for number in numbers))

    def _keys(self, numbers: Iterable[tuple[int, int]]) -> list[tuple[int, UUID]]:
        keys = []
        for number, age in numbers:
            (job_id,) = self._rows([number], "running")
            tokens = self.tokens.get(job_id, [])
            keys.append((job_id, tokens[-1 - age] if age < len(tokens) else NOBODY))
        return list(dict.fromkeys(keys))

    def _settlements(self, outcomes: Iterable[tuple[Any, ...]]) -> list[Settlement]:
        batch: dict[tuple[int, UUID], Settlement] = {}
        for row, age, verb, delay, word in outcomes:
            (key,) = self._keys([(row, age)])
            given: dict[str, Any] = {}
            if verb in ("retry", "snooze"):
                given["delay"] = None if delay is None else delay * MINUTE
            if verb in ("retry", "discard"):
                given["error"] = word
            if verb in ("discard", "abort"):
                given["reason"] = word and f"because {word}"
            if verb == "complete":
                given["result"] = word
            batch[key] = Settlement(*key, verb, **given)
        return list(batch.values())

    def _unlocked(self, ids: Iterable[int]) -> list[int]:
        return [job_id for job_id in ids if self.model.locks.get(job_id) != "row"]

    def _key_is_locked(self, job_id: int) -> bool:
        job = self.model.jobs.get(job_id)
        holder = None if job is None else self.model.holder(job.idempotency_key)
        return holder is not None and self.model.locks.get(holder) == "row"

    def _reach(self, what: str, count: int = 1) -> None:
        self.ground.reached[what] += count

    def _reach_all(self, verb: str, answers: Iterable[tuple[Any, ...]]) -> None:
        for landed, *_ in answers:
            self._reach(f"{verb}: {'landed' if landed else 'left'}")


def _told(job: Job, model: Model) -> dict[str, Any]:
    """What a claim tells of a job."""
    expired = job.expires_at is not None and job.expires_at <= model.now
    shown = {name: getattr(job, name) for name in records.ClaimedJob._fields if hasattr(job, name)}
    return {**shown, "token": job.lease_token, "expired": expired}


def _sent(one: Settlement) -> records.Settlement:
    result = None if one.result is None else encode(one.result)
    return records.Settlement(**{**one._asdict(), "verb": Verb(one.verb), "result": result})


def _columns(job: Job) -> dict[str, Any]:
    return vars(job).copy()


def _differences(rows: dict[int, dict[str, Any]], expected: dict[int, dict[str, Any]]) -> list[str]:
    lines = ["the rows are not what the table of verbs says:"]
    for job_id in sorted(rows.keys() | expected.keys()):
        if job_id not in rows or job_id not in expected:
            lines.append(f"job {job_id} is only {'in the model' if job_id in expected else 'in the table'}")
            continue
        lines += [
            f"job {job_id}: {name} is {value!r}, must be {expected[job_id][name]!r}"
            for name, value in rows[job_id].items()
            if value != expected[job_id][name]
        ]
    return lines


def _check_row(row: dict[str, Any]) -> None:
    """What is true of every row at any time."""
    status = row["status"]
    assert (status == "running") == (row["lease_token"] is not None) == (row["lease_until"] is not None)
    assert (status == "running") == (row["leased_by"] is not None)
    assert (status in TERMINAL) == (row["finished_at"] is not None)
    assert (status in ("dead", "cancelled")) == (row["reason"] is not None)
    assert 0 <= row["returned"] <= row["attempts"]
    assert row["attempts"] - row["returned"] <= row["max_attempts"], "BUDGET"
    # CANCEL-LOST: who asked for it must not find the job ready, or dead.
    assert row["cancel_requested_at"] is None or status in ("running", "done", "cancelled")
    if row["key_scope"] == "row":
        assert row["unique_key"] == row["idempotency_key"]
    if row["key_scope"] == "unfinished":
        assert row["unique_key"] == (None if status in TERMINAL else row["idempotency_key"])


def _check_change(old: dict[str, Any], row: dict[str, Any]) -> None:
    """What no single step may do to a row."""
    assert row["attempts"] >= old["attempts"]
    assert row["returned"] >= old["returned"]
    # TWO-COMPLETIONS: no way out of done.
    assert old["status"] != "done" or row == old
    if row["settled_token"] != old["settled_token"]:
        # Settled under the token that it had, once: TWO-OUTCOMES.
        assert row["settled_token"] == old["lease_token"] != row["lease_token"]
    if row["lease_token"] != old["lease_token"] and row["lease_token"] is not None:
        assert old["lease_token"] is None, "claimed from under its owner"
        assert row["attempts"] == old["attempts"] + 1


Check = Callable[[], None]
