"""What people and applications do: enqueue, cancel, redrive, reschedule; and prune, which runners do as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize
from sqlalchemy.orm import Session

from sa_jobqueue import admin, enqueue, enqueue_many
from sa_jobqueue.payloads import encode
from sa_jobqueue.records import NewJob
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.inserts import insert_jobs
from tests.model.clock import MINUTE
from tests.model.history import ROWS, History, step
from tests.model.rows import TERMINAL

NEW_JOB = st.tuples(
    st.sampled_from("ab"),  # kind
    st.sampled_from("pq"),  # queue
    st.sampled_from([0, 5, 5, 9]),  # priority
    st.sampled_from([None, None, None, -1, 0, 1]),  # due, in minutes from now
    st.sampled_from([None, None, None, 3, 6]),  # expires, in minutes from now
    st.sampled_from([1, 2, 2, 3]),  # max_attempts
    st.sampled_from([None, "x", "y", "z"]),  # key
)
WAYS = st.sampled_from(["session", "many", "unfinished", "unfinished"])
#: Unfinished jobs at a time, so that they meet.
MOST_WAITING = 6


class PeopleSteps(History):
    """Those of people."""

    @initialize(wanted=st.lists(NEW_JOB, min_size=3, max_size=5), way=WAYS)
    def begin(self, wanted: list[tuple[Any, ...]], way: str) -> None:
        self.act(("enqueue", {"wanted": wanted, "way": way}))

    @step(
        3,
        when=lambda self: self._waiting() < MOST_WAITING,
        wanted=st.lists(NEW_JOB, min_size=1, max_size=3),
        way=WAYS,
    )
    def enqueue(self, wanted: list[tuple[Any, ...]], way: str) -> None:
        if way == "unfinished":
            # A key that is held until its job is finished: nobody can ask for that yet, but the verbs know it.
            answers: Sequence[Any] = insert_jobs(self.person, self._new_jobs(wanted))
        elif way == "many":
            answers = enqueue_many(self.person, self._requests(wanted))
        else:
            new = self._requests(wanted)
            with Session(self.ground.application) as session, session.begin():
                session.add_all(new)
            answers = [job.enqueued for job in new]
        self._entered(wanted, answers, scope="unfinished" if way == "unfinished" else "row")

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

    def _new_jobs(self, wanted: list[tuple[Any, ...]]) -> list[NewJob]:
        now = self.model.now
        return [
            NewJob(
                kind=kind,
                payload=encode({"n": number}),
                queue=queue,
                priority=priority,
                max_attempts=attempts,
                run_at=None if due is None else now + due * MINUTE,
                expires_at=None if expires is None else now + expires * MINUTE,
                idempotency_key=key,
                key_scope=None if key is None else "unfinished",
            )
            for number, (kind, queue, priority, due, expires, attempts, key) in enumerate(wanted)
        ]

    def _entered(self, wanted: Sequence[tuple[Any, ...]], answers: Sequence[Any], *, scope: str) -> None:
        keyed: list[tuple[str, int]] = []
        free: list[int] = []
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
            self.reach("enqueue")
            if key is None:
                free.append(job_id)
            else:
                keyed.append((key, job_id))
        # Keyed ones get the lower ids, in the order of their keys; the others follow as they were added.
        ids = [job_id for _, job_id in sorted(keyed)] + free
        assert ids == sorted(ids)
        self.ids += ids

    @step(
        3,
        when=lambda self: self.any(*TERMINAL),
        status=st.sampled_from(["done", *TERMINAL]),
        age=st.sampled_from([0, 0, 2]),
        limit=st.sampled_from([1, 1, 9]),
        by_person=st.booleans(),
    )
    def prune(self, status: str, age: int, limit: int, by_person: bool) -> None:
        before = set(self.read())
        may = self.model.prunable(status, age * MINUTE)
        if by_person:
            answer = admin.prune(self.person, status=JobStatus(status), older_than=age * MINUTE, limit=limit)
        else:
            answer = self.store.prune(status=JobStatus(status), age=age * MINUTE, limit=limit)
        gone = before - set(self.read())
        # Of those that finished at the same time any may go first.
        times = [job.finished_at for job in may][:limit]
        assert sorted(job.finished_at for job in may if job.id in gone) == times  # type: ignore[type-var]
        assert gone <= {job.id for job in may}
        assert (answer.count, answer.refused) == (len(times), 0)
        for job_id in gone:
            del self.model.jobs[job_id]
        self.reach("prune", len(gone))

    @step(2, when=lambda self: self.any("ready", "running"), rows=ROWS)
    def cancel(self, rows: list[int]) -> None:
        ids = self._unlocked(self.some(rows[:2], "running"))
        expected = [self.model.cancel(job_id) for job_id in ids]
        answers = admin.cancel(self.person, ids)
        assert [(answer.landed, answer.status) for answer in answers] == expected
        self._reach_all("cancel", expected)

    @step(3, when=lambda self: self.any("dead", "cancelled"), rows=ROWS)
    def redrive(self, rows: list[int]) -> None:
        ids = self._unlocked(self.some(rows, "dead", "cancelled"))
        # Who takes a key waits for a transaction that is about to let it go.
        ids = [job_id for job_id in ids if not self._key_is_locked(job_id)]
        expected = [self.model.redrive(job_id) for job_id in ids]
        answers = admin.redrive(self.person, ids)
        assert [(answer.landed, answer.status, answer.reason) for answer in answers] == expected
        self._reach_all("redrive", expected)

    @step(
        1,
        when=lambda self: self.any("ready"),
        rows=ROWS,
        due=st.sampled_from([None, -1, 0, 2]),
        relative=st.booleans(),
        priority=st.sampled_from([None, 0, 9]),
    )
    def reschedule(self, rows: list[int], due: int | None, relative: bool, priority: int | None) -> None:
        if due is None and priority is None:
            return
        ids = self._unlocked(self.some(rows, "ready"))
        run_at = None if due is None else self.model.now + due * MINUTE
        expected = [self.model.reschedule(job_id, run_at=run_at, priority=priority) for job_id in ids]
        times: dict[str, Any] = {"run_at": run_at}
        if relative and due is not None and due >= 0:
            times = {"delay": due * MINUTE}
        answers = admin.reschedule(self.person, ids, priority=priority, **times)
        assert [(answer.landed, answer.status) for answer in answers] == expected
        self._reach_all("reschedule", expected)

    def _waiting(self) -> int:
        return sum(job.status not in TERMINAL for job in self.model.jobs.values())

    def _unlocked(self, ids: Iterable[int]) -> list[int]:
        return [job_id for job_id in ids if self.model.locks.get(job_id) != "row"]

    def _key_is_locked(self, job_id: int) -> bool:
        job = self.model.jobs.get(job_id)
        holder = None if job is None else self.model.holder(job.idempotency_key)
        return holder is not None and self.model.locks.get(holder) == "row"

    def _reach_all(self, verb: str, answers: Iterable[tuple[Any, ...]]) -> None:
        for landed, *_ in answers:
            self.reach(f"{verb}: {'landed' if landed else 'left'}")
