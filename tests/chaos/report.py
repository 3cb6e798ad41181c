"""What came of a run: a table for people, and what is wrong, if anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos import checks
from tests.chaos.faults import OUTAGES
from tests.chaos.fleet import BACKOFF, DEADLINE, LEASE, LOOPS, Lines

#: Seconds from the end of a fault until every runner claims again, but for starts of processes: a statement is given up,
#: and a loop has its longest backoff before it.
RECOVERY = DEADLINE + BACKOFF
#: Seconds from the last fault and the last new job until all is at rest: lost leases end, with their margin, and what
#: was lost is run again, with what else waited.
REST = RECOVERY + LEASE * 4 / 3 + 5.0
#: Lines a second that a runner may log about itself during an outage; each of its loops has one more to begin with.
LINES = 5


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, or several at once: how long it lasted, and how long until every runner claimed again.

    `rescue` is how late a lost job was taken back, counted from the end of its lease or of the fault. `claims` is how many
    jobs were claimed while it lasted, `lines` what each runner has logged meanwhile.
    """

    kinds: tuple[str, ...]
    seconds: float
    recovery: float | None
    rescue: float
    claims: int
    lines: Sequence[Lines]

    def __str__(self) -> str:
        recovery = "never" if self.recovery is None else f"{self.recovery:.1f} s"
        return f"{' and '.join(self.kinds)}: {self.seconds:.1f} s, at work again after {recovery}"

    @property
    def name(self) -> str:
        return self.kinds[0] if len(self.kinds) == 1 else "several at once"

    @property
    def outage(self) -> bool:
        return not OUTAGES.isdisjoint(self.kinds)

    @property
    def worst_lines(self) -> Lines:
        return Lines(max(it.jobs for it in self.lines), max(it.itself for it in self.lines))


@dataclass
class Report:
    seed: int
    server: str
    strikes: list[Strike] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)
    offenders: dict[str, list[int]] = field(default_factory=dict)
    ends: Counter[int] = field(default_factory=Counter)
    logs: dict[str, str] = field(default_factory=dict)
    #: What went wrong beyond the account.
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    #: Until every runner had claimed for the first time: what starts take on this machine.
    start: float = 0.0
    rest: float = 0.0

    def lost(self) -> int:
        return sum(len(self.offenders.get(check, ())) for check in checks.LOST)

    def table(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"seed {self.seed}, {self.seconds:.0f} s, {self.server}"
        sums = {
            **self.sums,
            "lost": self.lost(),
            "doubled completions": len(self.offenders.get("completed twice", ())),
            "doubled effects": len(self.offenders.get("effect twice", ())),
        }
        for name, value in sums.items():
            yield f"  {name:<24}{value:>10,}"
        yield f"  {'at work after':<24}{self.start:>10.1f} s"
        yield f"  {'at rest after':<24}{self.rest:>10.1f} s"
        yield f"  {'ends of processes':<24}{dict(self.ends)}"
        yield "".join([f"  {'fault':<24}", *(f"{title:>11}" for title in _COLUMNS)])
        for name in sorted({strike.name for strike in self.strikes}):
            cells = _row([strike for strike in self.strikes if strike.name == name])
            yield "".join([f"  {name:<24}", *(f"{cell:>11}" for cell in cells)])

    def wrong(self) -> list[str]:
        """What must not be; empty when the run has passed."""
        found = [f"{name}: {len(ids)}, such as {ids[:5]}" for name, ids in self.offenders.items()]
        return [*found, *self.remarks, *self._storms()]

    def slow(self) -> list[str]:
        """What took longer than it should on a machine that has the time."""
        bound = RECOVERY + 2 * self.start
        found = [
            f"{strike}: above {bound:.1f} s" for strike in self.strikes if (strike.recovery or 0) > bound
        ]
        if self.rest > REST + self.start:
            found.append(f"at rest after {self.rest:.1f} s: above {REST + self.start:.1f} s")
        return found

    def _storms(self) -> Iterator[str]:
        for strike in self.strikes:
            if strike.outage and strike.worst_lines.itself > LOOPS + LINES * strike.seconds:
                yield f"{strike}: {strike.worst_lines.itself} lines of one runner about itself"


#: Times and rates are the worst ones, of lines those of the runner that wrote most; about itself, and about jobs.
_COLUMNS = ("times", "lasted s", "claims/s", "recovery s", "rescue s", "lines/s", "of jobs/s")


def _row(strikes: Sequence[Strike]) -> tuple[str, ...]:
    never = any(strike.recovery is None for strike in strikes)

    def worst(figure: Callable[[Strike], float], per_second: bool = False) -> str:
        return f"{max(figure(it) / (max(it.seconds, 1) if per_second else 1) for it in strikes):.1f}"

    return (
        str(len(strikes)),
        worst(lambda it: it.seconds),
        worst(lambda it: it.claims, per_second=True),
        "never" if never else worst(lambda it: it.recovery or 0.0),
        worst(lambda it: it.rescue),
        worst(lambda it: it.worst_lines.itself, per_second=True),
        worst(lambda it: it.worst_lines.jobs, per_second=True),
    )
