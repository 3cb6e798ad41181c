"""What runners, people, maintenance and a bad network may do, in any order, on the real store and on the model.

All arguments are small numbers, so that what Hypothesis prints of a failure is a program that can be run again. Which row
a number means depends on the rule: those that it is about come first. Comments in capitals name the invariants that a
history may break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.orm import Session

from sa_jobqueue import admin, enqueue, enqueue_many, records
from sa_jobqueue.models import jobs
from sa_jobqueue.payloads import encode
from sa_jobqueue.records import ExpiredLease, Landing, NewJob, Progress
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.fencing import is_in_force, send_fence
from sa_jobqueue.store.inserts import insert_jobs
from sa_jobqueue.store.store import Store
from tests.model.clock import MINUTE, START, move, reset
from tests.model.model import TARGETS, TERMINAL, Answer, Job, Lock, Model, Settlement

#: Of an id and of a token that nobody has.
NO_JOB, NOBODY = 10**6, UUID(int=2**127)
RUNNER, OTHER_RUNNER = "runner-1", "runner-2"
#: Unfinished jobs at a time, so that they meet.
MOST_WAITING = 6

ROW = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 9])
#: How many claims of the job ago; 9 is nobody's.
AGE = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9])
KEY = st.tuples(ROW, AGE)
KEYS = st.lists(KEY, min_size=1, max_size=3)
ROWS = st.lists(ROW, min_size=1, max_size=3)
DELAYS = st.sampled_from([0, 0, 1, 3])
LEASES = st.sampled_from([1, 3, 5, 9])
TEXTS = st.sampled_from([None, "a", "b"])
OUTCOME = st.tuples(ROW, AGE, st.sampled_from(list(TARGETS)), st.sampled_from([None, 0, 1, 3]), TEXTS)
OUTCOMES = st.lists(OUTCOME, min_size=1, max_size=3)
NEW_JOB = st.tuples(
    st.sampled_from("ab"),  # kind
    st.sampled_from("pq"),  # queue
    st.sampled_from([0, 5, 5, 9]),  # priority
    st.sampled_from([None, None, None, -1, 0, 1]),  # due, in minutes from now
    st.sampled_from([None, None, None, 3, 6]),  # expires, in minutes from now
    st.sampled_from([1, 2, 2, 3]),  # max_attempts
    st.sampled_from([None, "x", "y"]),  # key
)
QUOTAS = st.tuples(st.integers(0, 2), st.integers(0, 2))
Act = TypeVar("Act", bound=Callable[..., None])
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
        self.engine = engine
        self.store = Store(engine, name=RUNNER)
        self.person = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.other: Connection = engine.connect()
        #: Verbs that did something, over all examples.
        self.reached: Counter[str] = Counter()

    def close(self) -> None:
        self.store.close()
        self.person.close()
        self.other.close()


STEPS: dict[str, Callable[[Any], bool]] = {}
_DRAWN: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def step(
    weight: int, *, when: Callable[[Any], bool] = lambda _: True, **arguments: st.SearchStrategy[Any]
) -> Callable[[Act], Act]:
    """A method that may be the next step of a history, as often as its weight says; nothing happens unless `when`.

    Hypothesis leaves out half of the rules in each history and chooses evenly among the others, so that few of its
    histories would have enough claims in them to be about anything.
    """

    def mark(act: Act) -> Act:
        STEPS[act.__name__] = when
        _DRAWN.extend([st.tuples(st.just(act.__name__), st.fixed_dictionaries(arguments))] * weight)
        return act

    return mark


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

    @step(4, minutes=st.sampled_from([1, 1, 1, 2, 4]))
    def time_passes(self, minutes: int) -> None:
        self.model.now += minutes * MINUTE
        move(self.person, self.model.now)

    # --- entry

    @initialize(wanted=st.lists(NEW_JOB, min_size=3, max_size=5))
    def begin(self, wanted: list[tuple[Any, ...]]) -> None:
        self._enqueue_many(wanted)
        self._compare()

    @step(
        2,
        when=lambda self: self._has_room(),
        wanted=st.lists(NEW_JOB, min_size=1, max_size=3),
        by_session=st.booleans(),
    )
    def enqueue(self, wanted: list[tuple[Any, ...]], by_session: bool) -> None:
        if not by_session:
            return self._enqueue_many(wanted)
        new = self._requests(wanted)
        with Session(self.person) as session, session.begin():
            session.add_all(new)
        return self._entered(wanted, [job.enqueued for job in new])

    def _enqueue_many(self, wanted: list[tuple[Any, ...]]) -> None:
        self._entered(wanted, enqueue_many(self.person, self._requests(wanted)))

    def _requests(self, wanted: list[tuple[Any, ...]]) -> list[Any]:
        now = self.model.now
        return [
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

    @step(2, when=lambda self: self._has_room(), wanted=NEW_JOB, key=st.sampled_from("xy"))
    def enqueue_unfinished(self, wanted: tuple[Any, ...], key: str) -> None:
        """A key that is held until its job is finished."""
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
        self._entered([(*wanted[:-1], key)], insert_jobs(self.person, [new]), scope="unfinished")

    def _entered(
        self, wanted: Sequence[tuple[Any, ...]], answers: Sequence[Any], *, scope: str = "row"
    ) -> None:
        keyed, free = [], []
        for number, (columns, answer) in enumerate(zip(wanted, answers, strict=True)):
            job_id, created = answer.id, answer.created
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

    @step(
        4,
        quotas=QUOTAS,
        kinds=st.sampled_from(["ab", "ab", "ab", "a"]),
        lease=LEASES,
        fate=st.sampled_from(["answered", "lost", "lost", "in flight"]),
    )
    def claim(self, quotas: tuple[int, int], kinds: str, lease: int, fate: str) -> None:
        with self._on(fate == "in flight") as store:
            token = self._claim(store, quotas, kinds, lease)
        if fate != "answered":
            self.lost_claims.append(token)

    @step(4, lease=LEASES)
    def claim_all(self, lease: int) -> None:
        """By a runner with its hands free."""
        self._claim(self.store, (9, 9), "ab", lease)

    def _claim(self, store: Store, quotas: tuple[int, int], kinds: str, lease: int) -> UUID:
        self.claims += 1
        token = UUID(int=self.claims)
        terms: dict[str, Any] = {
            "quotas": dict(zip("pq", quotas, strict=True)),
            "kinds": list(kinds),
            "lease": lease * MINUTE,
        }
        answers = store.claim(token=token, **terms)
        expected = self.model.claim(token, *terms.values(), store._name)
        assert [_told(job, self.model) for job in expected] == [job._asdict() for job in answers]
        for job in expected:
            assert job.attempt <= job.max_attempts, "BUDGET"
            self.tokens.setdefault(job.id, []).append(token)
            self._reach("claim")
        return token

    @step(2, when=lambda self: self.lost_claims, which=st.integers(0, 3))
    def release_claim(self, which: int) -> None:
        token = self.lost_claims[which % len(self.lost_claims)]
        expected = self.model.release_claim(token)
        assert self.store.release_claim(token=token) == expected
        self._reach("release_claim", expected)

    # --- what a runner holds

    @step(
        1,
        when=lambda self: self.tokens,
        keys=KEYS,
        lease=LEASES,
        in_flight=st.sampled_from([False, False, False, True]),
    )
    def renew(self, keys: list[tuple[int, int]], lease: int, in_flight: bool) -> None:
        held = self._keys(keys)
        with self._on(in_flight) as store:
            answers = store.renew(held, lease=lease * MINUTE)
            self._check_held("renew", held, [self.model.renew(key, lease * MINUTE) for key in held], answers)

    @step(1, when=lambda self: self.tokens, keys=KEYS, tenths=st.sampled_from([None, 5]), said=TEXTS)
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
            word = "landed" if request is not None else self.model.why_not(Settlement(*key, verb)).word
            assert answer == records.Renewed(*key, LANDINGS[word], bool(request)), word
            self._reach(f"{verb}: {word}")

    @step(
        6,
        when=lambda self: self.tokens,
        outcomes=OUTCOMES,
        fate=st.sampled_from(["answered", "answered", "answered", "lost", "in flight", "never", "late"]),
    )
    def settle(self, outcomes: list[tuple[Any, ...]], fate: str) -> None:
        batch = self._settlements(outcomes)
        if fate not in ("never", "late"):
            with self._on(fate == "in flight") as store:
                self._settle(store, batch)
        if fate != "answered":
            self.doubts += [Doubt(one, fate == "late") for one in batch]

    @step(2, when=lambda self: any(doubt.on_its_way for doubt in self.doubts), which=st.integers(0, 3))
    def lands_late(self, which: int) -> None:
        """The statement of a connection that was given up: it does what it can, and nobody hears of it."""
        late = [place for place, doubt in enumerate(self.doubts) if doubt.on_its_way]
        place = late[which % len(late)]
        one = self.doubts[place].one
        self.doubts[place] = Doubt(one, False)
        self._settle(self.store, [one])

    @step(3, when=lambda self: self.doubts, which=st.integers(0, 5))
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
        if again and wanted.word == "landed":
            assert status in TARGETS[one.verb]
            same = self.model.landed[one[:2]].word == one.verb
            if not same or self.model.jobs[one.id].status != wanted.status:
                return
        assert status == wanted.status

    # --- maintenance

    @step(
        5,
        when=lambda self: self.leases or self._any("running"),
        look=st.sampled_from([True, True, False]),
        delay=DELAYS,
        margin=st.sampled_from([0, 0, 0, 1, 2]),
        limit=st.sampled_from([1, 9]),
    )
    def rescue(self, look: bool, delay: int, margin: int, limit: int) -> None:
        """Of those that are found now, or of those that were found, however long ago that was."""
        if look:
            self.leases = self.store.expired_leases(lease=MINUTE, margin=margin * MINUTE, limit=limit)
            names = ("id", "kind", "queue", "attempts", "returned", "max_attempts", "leased_by")
            assert [asdict(lease) for lease in self.leases] == [
                {**{name: getattr(job, name) for name in names}, "token": job.lease_token}
                for job in self.model.expired(margin * MINUTE, limit)
            ]
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

    @step(
        2,
        when=lambda self: self._any(*TERMINAL),
        status=st.sampled_from(TERMINAL),
        age=st.sampled_from([0, 2]),
        limit=st.sampled_from([1, 9]),
        by_person=st.booleans(),
    )
    def prune(self, status: str, age: int, limit: int, by_person: bool) -> None:
        before = set(self._read())
        may = self.model.prunable(status, age * MINUTE)
        if by_person:
            answer = admin.prune(self.person, status=JobStatus(status), older_than=age * MINUTE, limit=limit)
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

    @step(1, when=lambda self: self._any("ready", "running"), rows=ROWS)
    def cancel(self, rows: list[int]) -> None:
        ids = self._unlocked(self._rows(rows[:1], "running"))
        expected = [self.model.cancel(job_id) for job_id in ids]
        answers = admin.cancel(self.person, ids)
        assert [(answer.landed, answer.status) for answer in answers] == expected
        self._reach_all("cancel", expected)

    @step(3, when=lambda self: self._any("dead", "cancelled"), rows=ROWS)
    def redrive(self, rows: list[int]) -> None:
        ids = self._unlocked(self._rows(rows, "dead", "cancelled"))
        # Who takes a key waits for a transaction that is about to let it go.
        ids = [job_id for job_id in ids if not self._key_is_locked(job_id)]
        expected = [self.model.redrive(job_id) for job_id in ids]
        answers = admin.redrive(self.person, ids)
        assert [(answer.landed, answer.status, answer.reason) for answer in answers] == expected
        self._reach_all("redrive", expected)

    @step(
        1,
        when=lambda self: self._any("ready"),
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

    @contextmanager
    def _on(self, in_flight: bool) -> Iterator[Store]:
        """The runner's own connection, or the transaction that is open until it ends."""
        if not in_flight:
            yield self.store
        else:
            with self.model.inside():
                yield self.inner

    @step(1, rows=st.lists(ROW, max_size=2), strength=st.sampled_from(["row", "key share"]))
    def lock(self, rows: list[int], strength: Lock) -> None:
        """Without rows, a transaction that begins long before it does anything."""
        lock = "NO KEY UPDATE" if strength == "row" else "KEY SHARE"
        self.other.execute(text("SELECT 1"))
        for job_id in self._rows(rows, "running", "ready"):
            self.other.execute(text(f"SELECT FROM jobqueue_jobs WHERE id = {job_id} FOR {lock}"))
            self.model.lock(job_id, strength)

    @step(2, when=lambda self: self.tokens, key=KEY, result=TEXTS, lease=LEASES)
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
            word = "landed" if self.model.fence(one) else self.model.why_not(one).word
            assert answer.landing is LANDINGS[word]
            assert (answer.xid is not None) is (word == "landed")
            self._reach(f"fence: {word}")
        if answer.xid is not None:
            self.fenced.append((key_, answer.xid))
            self.model.fates[answer.xid] = "in progress"
            # What a handler does after such a block is a retry; its own connection may have been lost at the COMMIT.
            self.doubts.append(Doubt(Settlement(*key_, "retry", error="in doubt", xid=answer.xid), False))

    @step(3, when=lambda self: self.other.in_transaction(), commit=st.sampled_from([True, True, False]))
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

    @rule(step=st.sampled_from(_DRAWN).flatmap(lambda drawn: drawn))
    def then(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        if STEPS[name](self):
            getattr(self, name)(**arguments)
            self._compare(at_once=name == "end")

    # --- what must hold after every step

    def _compare(self, *, at_once: bool = False) -> None:
        """`at_once` says that several statements may have been seen as one."""
        before, self.rows = self.rows, self._read()
        expected = {job_id: _columns(job) for job_id, job in self.model.jobs.items()}
        if self.rows != expected:
            pytest.fail("\n".join(_differences(self.rows, expected)))
        for row in self.rows.values():
            _check_row(row)
            if (old := before.get(row["id"])) is not None:
                _check_change(old, row, at_once=at_once)
        held = [row["unique_key"] for row in self.rows.values() if row["unique_key"] is not None]
        assert len(held) == len(set(held)), "one holder for each key"

    # --- pieces

    def _read(self) -> dict[int, dict[str, Any]]:
        rows = self.person.execute(select(jobs)).mappings()
        return {row["id"]: {**row, "errors": tuple(row["errors"])} for row in rows}

    def _rows(self, numbers: Iterable[int], *statuses: str) -> list[int]:
        """Ids, each once: 0 to 3 is one of these statuses where there is any, 4 another, 9 none that anybody has."""
        wanted = [job_id for job_id in self.ids if self._any(*statuses, among=[job_id])]
        others = [job_id for job_id in self.ids if job_id not in wanted]
        ids = []
        for number in numbers:
            rows = (wanted or others) if number < 4 else others
            ids.append(rows[number % len(rows)] if rows and number < 9 else NO_JOB)
        return list(dict.fromkeys(ids))

    def _has_room(self) -> bool:
        return sum(job.status not in TERMINAL for job in self.model.jobs.values()) < MOST_WAITING

    def _any(self, *statuses: str, among: Iterable[int] = ()) -> bool:
        rows = self.model.jobs
        return any(rows[job_id].status in statuses for job_id in among or rows if job_id in rows)

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


def _check_change(old: dict[str, Any], row: dict[str, Any], *, at_once: bool) -> None:
    """What no step may do to a row, and no single statement."""
    assert row["attempts"] >= old["attempts"]
    assert row["returned"] >= old["returned"]
    # TWO-COMPLETIONS: no way out of done.
    assert old["status"] != "done" or row == old
    if at_once:
        return
    if row["settled_token"] != old["settled_token"]:
        # Settled under the token that it had, once: TWO-OUTCOMES.
        assert row["settled_token"] == old["lease_token"] != row["lease_token"]
    if row["lease_token"] != old["lease_token"] and row["lease_token"] is not None:
        assert old["lease_token"] is None, "claimed from under its owner"
        assert row["attempts"] == old["attempts"] + 1
