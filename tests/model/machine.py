"""What runners, people and a bad network may do, in any order, on the real store and on the model.

All arguments of a step are small numbers, so that what Hypothesis prints of a failure is a program that can be run again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from sqlalchemy import text

from sa_jobqueue.payloads import encode
from sa_jobqueue.store.fencing import is_in_force, send_fence
from tests.model.clock import MINUTE, move
from tests.model.history import KEY, LANDINGS, LEASES, NEXT, ROW, TEXTS, Doubt, step
from tests.model.people_steps import PeopleSteps
from tests.model.rows import Lock, Settlement
from tests.model.runner_steps import RunnerSteps


class Machine(RunnerSteps, PeopleSteps):
    """All of it, with time, and another transaction: somebody's lock, statements in flight, a handler's own completion."""

    @step(4, minutes=st.sampled_from([1, 1, 1, 2, 4]))
    def time_passes(self, minutes: int) -> None:
        self.model.now += minutes * MINUTE
        move(self.person, self.model.now)

    @step(1, rows=st.lists(ROW, max_size=2), strength=st.sampled_from(["row", "key share"]))
    def lock(self, rows: list[int], strength: Lock) -> None:
        """Without rows, a transaction that begins long before it does anything."""
        lock = "NO KEY UPDATE" if strength == "row" else "KEY SHARE"
        self.other.execute(text("SELECT 1"))
        for job_id in self.some(rows, "running", "ready"):
            self.other.execute(text(f"SELECT FROM jobqueue_jobs WHERE id = {job_id} FOR {lock}"))
            self.model.lock(job_id, strength)

    @step(3, when=lambda self: self.any("running"), key=KEY, result=TEXTS, lease=LEASES)
    def fence(self, key: tuple[int, int], result: str | None, lease: int) -> None:
        (key_,) = self.keys_of([key])
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
            self.reach(f"fence: {word}")
        if answer.xid is not None:
            self.fenced.append((key_, answer.xid))
            self.model.fates[answer.xid] = "in progress"
            # What a handler does after such a block is a retry; its own connection may have been lost at the COMMIT.
            self.doubts.append(Doubt(Settlement(*key_, "retry", error="in doubt", xid=answer.xid), False))

    @step(7, when=lambda self: self.other.in_transaction(), commit=st.sampled_from([True, True, False]))
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

    @rule(step=NEXT)
    def then(self, step: tuple[str, dict[str, Any]]) -> None:
        self.act(step)
