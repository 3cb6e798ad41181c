"""What has happened under each claim, and to each job: the facts that the checks judge by, kept apart from the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID

    from sa_jobqueue.states import Verb

Key = tuple[int, "UUID"]


@dataclass(slots=True, eq=False)
class Facts:
    """Of one claim of one job.

    `owner` is the process that sent it. `generation` is how often a person has redriven the job before. `landed` is the verb
    that has ended the claim, `reported` what its runner has told about that first. `block`: the handler has begun a
    transaction of its own, `xid_known` that the runner knows its number. `said` is the progress that the handler has told last.
    """

    owner: Any
    generation: int
    began: bool = False
    landed: Verb | None = None
    reported: str | None = None
    effects: int = 0
    block: bool = False
    xid_known: bool = False
    said: float | None = None


class Ledger:
    """The facts of one schedule. A row may be pruned, the ledger forgets nothing."""

    def __init__(self) -> None:
        self.claims: dict[Key, Facts] = {}
        self.of_job: defaultdict[int, list[Facts]] = defaultdict(list)
        self.generation: Counter[int] = Counter()
        #: Completions of a job since it was last redriven; effects and reports of its whole life.
        self.completions: Counter[int] = Counter()
        self.effects: Counter[int] = Counter()
        self.reported_done: Counter[int] = Counter()
        #: Running jobs whose cancellation somebody was promised.
        self.promised: set[int] = set()
        #: When and of whom jobs were rescued; when and whose leases had run out although their holder came.
        self.rescued: list[tuple[float, str]] = []
        self.lapsed: list[tuple[float, int]] = []
        #: How long due jobs waited for their claims, whose, and whether a notification had told of them.
        self.waits: list[tuple[float, int, bool]] = []

    def claim(self, key: Key, owner: Any) -> None:
        self.claims[key] = facts = Facts(owner, self.generation[key[0]])
        self.of_job[key[0]].append(facts)

    def redriven(self, job_id: int) -> None:
        self.generation[job_id] += 1
        self.completions[job_id] = 0
        self.promised.discard(job_id)

    def spent(self, job_id: int) -> int:
        """How many runs since it was last redriven count: those that began, but for those that were snoozed."""
        generation = self.generation[job_id]
        return sum(
            facts.began and facts.landed != "snooze"
            for facts in self.of_job[job_id]
            if facts.generation == generation
        )
