"""What may go wrong in a schedule, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

#: Of every runner here, in seconds.
LEASE, INTERVAL, POLL, RESCUE, GRACE = 6.0, 2.0, 2.0, 2.0, 3.0
#: How long things go wrong.
TROUBLED = 12.0
LIMITS = {"a": 2, "b": 1}
ROOMY = {"a": 12, "b": 12}


@dataclass(frozen=True, slots=True)
class Profile:
    """What may go wrong: shares of statements, and how often per schedule the rest happens at most.

    `attempts_are_exact`: no attempt is spent on what never ran. `living_keep`: no job of a living runner is rescued.
    `nothing_fails`: no lease of a living runner ever runs out, and no word of progress is lost. `prompt`: whatever is due
    is begun soon. `travel` is how long a statement and an answer are on their
    way at most, `arrivals` how long it takes until the last job is added, in seconds. `blocks` is the share of handlers that complete their jobs in transactions of their own, `talk` that of handlers that tell how far they are.
    """

    trouble: Mapping[str, float] = field(default_factory=dict)
    restarts: int = 0
    partitions: int = 0
    cuts: int = 0
    pauses: int = 0
    crashes: int = 0
    stops: int = 0
    locks: int = 0
    cancels: int = 0
    redrives: int = 0
    reschedules: int = 0
    late_jobs: int = 0
    poisoned: int = 0
    travel: float = 0.02
    jobs: int = 7
    arrivals: float = TROUBLED * 0.7
    limits: Mapping[str, int] = field(default_factory=lambda: LIMITS)
    longest_outage: float = LEASE * 1.3
    long_runs: bool = False
    short_runs: bool = False
    timeout: timedelta | None = None
    retention: float | None = None
    blocks: float = 0.0
    talk: float = 0.2
    preemption: float = 0.0
    attempts_are_exact: bool = False
    living_keep: bool = False
    nothing_fails: bool = False
    prompt: bool = False
    reports_are_exact: bool = False


_TROUBLE = {"refused": 0.02, "never": 0.02, "late": 0.02, "lost": 0.02}
EVERYTHING = Profile(
    _TROUBLE,
    restarts=1,
    cuts=1,
    pauses=2,
    crashes=1,
    stops=1,
    locks=3,
    cancels=2,
    redrives=2,
    reschedules=1,
    preemption=0.01,
)
CALM = Profile(attempts_are_exact=True, living_keep=True, nothing_fails=True, preemption=0.02)
#: Handlers that are short and tell how far they are, on a slow line.
TALK = replace(CALM, short_runs=True, travel=0.1, talk=1.0)
PROMPT = Profile(jobs=14, limits=ROOMY, short_runs=True, reschedules=2, cancels=1, prompt=True)
#: A database so slow that queues are seldom looked through.
FLOODS = Profile(jobs=50, arrivals=0.5, travel=0.3, short_runs=True, stops=1, locks=2, cancels=4)
LOST_ANSWERS = Profile({"never": 0.03, "late": 0.05, "lost": 0.05}, attempts_are_exact=True, poisoned=1)
OUTAGES = Profile(restarts=1, partitions=1, longest_outage=LEASE * 3, long_runs=True, living_keep=True)
TIMEOUTS = Profile(
    {"refused": 0.01, "never": 0.01, "lost": 0.01},
    cuts=1,
    pauses=1,
    crashes=1,
    stops=1,
    locks=3,
    long_runs=True,
    timeout=timedelta(seconds=1),
    preemption=0.02,
)
LATE_JOBS = Profile({"lost": 0.02}, crashes=1, stops=1, late_jobs=8)
TAKEOVERS = Profile(cuts=2, pauses=2, locks=1, longest_outage=LEASE * 2, long_runs=True)
BLOCKS = replace(EVERYTHING, blocks=0.8, timeout=timedelta(seconds=4))
DOUBTS = Profile(
    {"never": 0.04, "late": 0.06, "lost": 0.06}, locks=2, cuts=1, blocks=1.0, reports_are_exact=True
)
#: People at work, on a table that forgets soon.
PEOPLE = Profile(_TROUBLE, cancels=8, redrives=12, reschedules=3, locks=2, cuts=1, blocks=0.3)
FORGETTING = Profile(
    {"never": 0.02, "late": 0.04, "lost": 0.04},
    locks=2,
    cuts=1,
    cancels=2,
    redrives=2,
    blocks=0.5,
    retention=0.2,
)
