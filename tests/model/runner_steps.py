"""What runners do, and what the network makes of it: claims, renewals, outcomes, lost answers, rescues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from sa_jobqueue import records
from sa_jobqueue.payloads import encode
from sa_jobqueue.records import ExpiredLease, Progress
from sa_jobqueue.states import JobStatus, Verb
from sa_jobqueue.store.store import Store
from tests.model.clock import MINUTE
from tests.model.history import AGE, HELD_ROW, KEY, KEYS, LANDINGS, LEASES, TEXTS, Doubt, History, step
from tests.model.model import Model
from tests.model.rows import TARGETS, Answer, Job, Settlement

QUOTAS = st.tuples(st.integers(0, 2), st.integers(0, 2))
VERBS = st.sampled_from(["complete", "retry", *TARGETS])
REST = (st.sampled_from([None, 0, 1, 3]), TEXTS)
OUTCOMES = st.lists(st.tuples(HELD_ROW, AGE, VERBS, *REST), min_size=1, max_size=3)
MARGINS = st.sampled_from([0, 0, 0, 1, 2])


class RunnerSteps(History):
    """Those of runners."""

    @step(
        4,
        when=lambda self: self.any("ready"),
        quotas=QUOTAS,
        kinds=st.sampled_from(["ab", "ab", "ab", "a"]),
        lease=LEASES,
        fate=st.sampled_from(["answered", "lost", "lost", "in flight"]),
    )
    def claim(self, quotas: tuple[int, int], kinds: str, lease: int, fate: str) -> None:
        with self.on(fate == "in flight") as store:
            token = self._claim(store, quotas, kinds, lease)
        if fate != "answered":
            self.lost_claims.append(token)

    @step(6, when=lambda self: self.any("ready"), lease=LEASES)
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
        expected = self.model.claim(token, **terms, runner=store._name)
        assert [_told(job, self.model) for job in expected] == [job._asdict() for job in answers]
        for job in expected:
            assert job.attempt <= job.max_attempts, "BUDGET"
            self.tokens.setdefault(job.id, []).append(token)
            self.reach("claim")
        return token

    @step(4, when=lambda self: self.lost_claims, which=st.integers(0, 3))
    def release_claim(self, which: int) -> None:
        token = self.lost_claims[which % len(self.lost_claims)]
        expected = self.model.release_claim(token)
        assert self.store.release_claim(token=token) == expected
        self.reach("release_claim", expected)

    # --- what a runner holds

    @step(
        2,
        when=lambda self: self.tokens,
        keys=KEYS,
        lease=LEASES,
        in_flight=st.sampled_from([False, False, False, True]),
    )
    def renew(self, keys: list[tuple[int, int]], lease: int, in_flight: bool) -> None:
        held = self.keys_of(keys)
        with self.on(in_flight) as store:
            answers = store.renew(held, lease=lease * MINUTE)
            self._check_held("renew", held, [self.model.renew(key, lease * MINUTE) for key in held], answers)

    @step(1, when=lambda self: self.tokens, keys=KEYS, tenths=st.sampled_from([None, 5]), said=TEXTS)
    def report(self, keys: list[tuple[int, int]], tenths: int | None, said: str | None) -> None:
        held, fraction = self.keys_of(keys), None if tenths is None else tenths / 10
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
            self.reach(f"{verb}: {word}")

    @step(
        1,
        when=lambda self: self.tokens,
        outcome=st.tuples(HELD_ROW, st.sampled_from([1, 2, 9]), VERBS, *REST),
    )
    def settle_late(self, outcome: tuple[Any, ...]) -> None:
        """By somebody whose lease was taken away."""
        self._settle(self.store, self.settlements([outcome]))

    @step(
        8,
        when=lambda self: self.any("running"),
        outcomes=OUTCOMES,
        fate=st.sampled_from(["answered", "answered", "lost", "in flight", "in flight", "never", "late"]),
    )
    def settle(self, outcomes: list[tuple[Any, ...]], fate: str) -> None:
        batch = self.settlements(outcomes)
        if fate not in ("never", "late"):
            with self.on(fate == "in flight") as store:
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

    @step(4, when=lambda self: self.doubts, which=st.integers(0, 5))
    def settle_again(self, which: int) -> None:
        one = self.doubts[-1 - which % len(self.doubts)].one
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
            self.reach(f"{one.verb}: {wanted.word}" if wanted.word in ("landed", "done") else wanted.word)
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

    @step(
        4,
        when=lambda self: self.any("running"),
        delay=st.sampled_from([0, 0, 1, 3]),
        past=MARGINS,
        margin=MARGINS,
        limit=st.sampled_from([1, 9]),
    )
    def rescue_found(self, delay: int, past: int, margin: int, limit: int) -> None:
        leases = self.store.expired_leases(lease=MINUTE, margin=past * MINUTE, limit=limit)
        expected = self.model.expired(past * MINUTE, limit)
        assert [asdict(lease) for lease in leases] == [asdict(_lease(job)) for job in expected]
        self._rescue(leases, delay, margin)

    @step(3, when=lambda self: self.tokens, key=KEY, delay=st.sampled_from([0, 1]), margin=MARGINS)
    def rescue_known(self, key: tuple[int, int], delay: int, margin: int) -> None:
        """Of what was found before, however long ago that was: renewed, rescued and claimed again by others since."""
        job_id, token = self.keys_of([key])[0]
        if job_id in self.model.jobs:
            self._rescue([_lease(self.model.jobs[job_id], token)], delay, margin)

    def _rescue(self, leases: Sequence[ExpiredLease], delay: int, margin: int) -> None:
        answers = self.store.rescue([(lease, delay * MINUTE) for lease in leases], margin=margin * MINUTE)
        expected = {}
        for lease in leases:
            key = (lease.id, lease.token)
            if (status := self.model.rescue(key, delay * MINUTE, margin * MINUTE)) is not None:
                expected[lease.id] = (status, lease.counted_attempts)
                self.reach(f"rescue: {status}")
        assert {answer.id: (answer.status, answer.counted_attempts) for answer in answers} == expected

    def settlements(self, outcomes: Iterable[tuple[Any, ...]]) -> list[Settlement]:
        batch: dict[tuple[int, UUID], Settlement] = {}
        for row, age, verb, delay, word in outcomes:
            (key,) = self.keys_of([(row, age)])
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


def _lease(job: Job, token: UUID | None = None) -> ExpiredLease:
    return ExpiredLease(
        id=job.id,
        token=token or job.lease_token or UUID(int=0),
        kind=job.kind,
        queue=job.queue,
        attempts=job.attempts,
        returned=job.returned,
        max_attempts=job.max_attempts,
        leased_by=job.leased_by,
    )


def _told(job: Job, model: Model) -> dict[str, Any]:
    """What a claim tells of a job."""
    expired = job.expires_at is not None and job.expires_at <= model.now
    shown = {name: getattr(job, name) for name in records.ClaimedJob._fields if hasattr(job, name)}
    size = len(json.dumps(job.payload))  # with spaces, as jsonb is written
    return {**shown, "token": job.lease_token, "expired": expired, "size": size}


def _sent(one: Settlement) -> records.Settlement:
    result = None if one.result is None else encode(one.result)
    return records.Settlement(**{**one._asdict(), "verb": Verb(one.verb), "result": result})
