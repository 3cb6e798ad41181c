"""What can be set on a runner, checked where it is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sa_jobqueue.durations import SHORTEST_TIMEOUT, check_setting
from sa_jobqueue.names import check_name
from sa_jobqueue.retention import Retention

DEFAULT_CONCURRENCY = 10
#: Beyond this a number of handlers at once is a slip: a claim would take the whole queue.
MOST_CONCURRENCY = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """Settings of one runner; raises TypeError or ValueError naming the values that can't work.

    `queues` gives each queue its number of handlers at once. `lease` is how long a claimed job stays ours without a
    renewal; it is renewed every third of it. `poll_interval` is how long an idle runner waits before it looks again.
    `grace` is what running handlers get after a stop. `rescue_interval` is how often expired leases of lost runners
    are looked for. `timeout` is how long a handler may run that names no timeout of its own, None for as long as it
    likes. `retention` is how long finished jobs are kept, `prune_interval` how often those past it are deleted.
    `burst` ends the run once no job is due.
    """

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": DEFAULT_CONCURRENCY})
    lease: timedelta = timedelta(minutes=2)
    poll_interval: timedelta = timedelta(seconds=1)
    grace: timedelta = timedelta(seconds=25)
    rescue_interval: timedelta = timedelta(seconds=5)
    retention: Retention = field(default_factory=Retention)
    prune_interval: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None
    burst: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.queues, Mapping):
            raise TypeError(
                f"queues={self.queues!r}: expected each queue's number of handlers, for example queues={{'default': 10}}"
            )
        if not self.queues:
            raise ValueError("queues is empty: name at least one, for example queues={'default': 10}")
        for queue, concurrency in self.queues.items():
            check_name("queues", queue)
            if type(concurrency) is not int or not 1 <= concurrency <= MOST_CONCURRENCY:
                raise ValueError(
                    f"queues[{queue!r}]={concurrency!r}: the number of handlers at once must be a whole number from 1 to "
                    f"{MOST_CONCURRENCY}"
                )
        if type(self.burst) is not bool:
            raise TypeError(f"burst={self.burst!r}: must be True or False")
        if self.name is not None:
            check_name("name", self.name)
        for name, shortest in (
            ("lease", timedelta(milliseconds=300)),
            ("poll_interval", timedelta(milliseconds=1)),
            ("grace", timedelta(0)),
            ("rescue_interval", timedelta(milliseconds=10)),
            ("prune_interval", timedelta(milliseconds=10)),
        ):
            check_setting(name, getattr(self, name), shortest)
        if self.timeout is not None:
            check_setting("timeout", self.timeout, SHORTEST_TIMEOUT)

    @property
    def renewal_interval(self) -> timedelta:
        """A third of the lease: two renewals may fail before it ends."""
        return self.lease / 3
