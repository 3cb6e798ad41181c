"""What can be set on a runner, checked where it is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.durations import format_duration
from sa_jobqueue.names import check_name
from sa_jobqueue.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CONCURRENCY = 10
#: Beyond a year a setting is a slip, and beyond some centuries the arithmetic of leases ends.
LONGEST = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """Settings of one runner; raises ValueError naming the values that can't work.

    `queues` gives each queue its number of handlers at once. `lease` is how long a claimed job stays ours without a
    renewal; it is renewed every third of it. `poll_interval` is how long an idle runner waits before it looks again.
    `grace` is what running handlers get after a stop. `rescue_interval` is how often expired leases of lost runners
    are looked for. `retention` is how long finished jobs are kept, `prune_interval` how often those past it are deleted.
    `burst` ends the run once no job is due.
    """

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": DEFAULT_CONCURRENCY})
    lease: timedelta = timedelta(minutes=2)
    poll_interval: timedelta = timedelta(seconds=1)
    grace: timedelta = timedelta(seconds=25)
    rescue_interval: timedelta = timedelta(seconds=5)
    retention: Retention = field(default_factory=Retention)
    prune_interval: timedelta = timedelta(minutes=1)
    burst: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.queues:
            raise ValueError("queues is empty: name at least one, for example queues={'default': 10}")
        for queue, concurrency in self.queues.items():
            check_name("queues", queue)
            if type(concurrency) is not int or concurrency < 1:
                raise ValueError(
                    f"queues[{queue!r}]={concurrency!r}: the number of handlers at once must be a whole number from 1 on"
                )
        if self.name is not None:
            check_name("name", self.name)
        for name, shortest in (
            ("lease", timedelta(milliseconds=300)),
            ("poll_interval", timedelta(milliseconds=1)),
            ("grace", timedelta(0)),
            ("rescue_interval", timedelta(milliseconds=10)),
            ("prune_interval", timedelta(milliseconds=10)),
        ):
            value: timedelta = getattr(self, name)
            if not shortest <= value <= LONGEST:
                raise ValueError(
                    f"{name}={format_duration(value)}: must be from {format_duration(shortest)} to "
                    f"{format_duration(LONGEST)}"
                )

    @property
    def renewal_interval(self) -> timedelta:
        """A third of the lease: two renewals may fail before it ends."""
        return self.lease / 3
