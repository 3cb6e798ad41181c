"""What can be set on a runner, checked where it is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, get_args

from sqlalchemy import URL

from sa_jobqueue.database import normalise_url
from sa_jobqueue.durations import SHORTEST_TIMEOUT, check_setting
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.names import check_name
from sa_jobqueue.retention import Retention

DEFAULT_CONCURRENCY = 10
#: Beyond this a number of handlers at once is a slip: a claim would take the whole queue.
MOST_CONCURRENCY = 100_000
#: The bounds of what one statement of the runner's own may take.
SHORTEST_DEADLINE, LONGEST_DEADLINE = timedelta(seconds=5), timedelta(seconds=60)
ExecutorName = Literal["thread", "asyncio"]
EXECUTORS: tuple[str, ...] = get_args(ExecutorName)
_CONCURRENCY = f"the number of handlers at once must be a whole number from 1 to {MOST_CONCURRENCY}"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How one queue is served: its number of handlers at once, and where they run.

    `executor` is "thread" or "asyncio"; None leaves it to the handlers: asyncio when one registered for the queue is
    async, else threads. Raises ValueError naming the value that can't work.
    """

    concurrency: int = DEFAULT_CONCURRENCY
    executor: ExecutorName | None = None

    def __post_init__(self) -> None:
        if not _is_concurrency(self.concurrency):
            raise ValueError(f"QueueSettings(concurrency={self.concurrency!r}): {_CONCURRENCY}")
        if self.executor is not None and self.executor not in EXECUTORS:
            raise ValueError(
                f"QueueSettings(executor={self.executor!r}): no such executor, there is {' or '.join(EXECUTORS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """Settings of one runner; raises TypeError or ValueError naming the values that can't work.

    `queues` gives each queue its number of handlers at once, or its QueueSettings; None means every queue that a handler
    names, with 10 each. `lease` is how long a claimed job stays ours without a renewal; it is renewed every third of it.
    `poll_interval` is how long an idle runner waits before it looks again. `grace` is what running handlers get after a
    stop. `rescue_interval` is how often expired leases of lost runners are looked for. `retention` is how long finished
    jobs are kept, `prune_interval` how often those past it are deleted. `timeout` is how long a handler may run that names
    no timeout of its own, None for as long as it likes. `burst` ends the run once no job is due that can be claimed. With
    `listen` a commit that adds jobs wakes an idle runner; `listen_url` is where it listens, for a database that is reached
    through a pooler. `name` goes into `leased_by`, events and logs; None makes one of host and process, another for each
    Runner.
    """

    queues: Mapping[str, int | QueueSettings] | None = None
    lease: timedelta = timedelta(minutes=2)
    poll_interval: timedelta = timedelta(seconds=1)
    grace: timedelta = timedelta(seconds=25)
    rescue_interval: timedelta = timedelta(seconds=5)
    retention: Retention = field(default_factory=Retention)
    prune_interval: timedelta = timedelta(minutes=1)
    timeout: timedelta | None = None
    burst: bool = False
    listen: bool = True
    listen_url: str | URL | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.queues is not None:
            _check_queues(self.queues)
        for flag in ("burst", "listen"):
            if type(value := getattr(self, flag)) is not bool:
                raise TypeError(f"{flag}={value!r}: must be True or False")
        self._check_listen_url()
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

    def _check_listen_url(self) -> None:
        if self.listen_url is None:
            return
        if not isinstance(self.listen_url, str | URL):
            raise TypeError(f"listen_url: expected a URL, got {type(self.listen_url).__qualname__}")
        try:
            # Kept as a URL, which hides its password from whoever prints the settings.
            object.__setattr__(self, "listen_url", normalise_url(self.listen_url))
        except ConfigurationError as error:
            raise ValueError(f"listen_url: {error}") from None

    def serving(self, queues: Iterable[str]) -> RunnerSettings:
        """The same with these queues, where none were named."""
        if self.queues is not None:
            return self
        return replace(self, queues=dict.fromkeys(queues, DEFAULT_CONCURRENCY))

    @property
    def limits(self) -> dict[str, int]:
        """How many handlers each queue may run at once."""
        return {
            queue: given.concurrency if isinstance(given, QueueSettings) else given
            for queue, given in (self.queues or {}).items()
        }

    def executor(self, queue: str) -> ExecutorName | None:
        """The executor that a queue was given, None when that was left to its handlers."""
        given = (self.queues or {}).get(queue)
        return given.executor if isinstance(given, QueueSettings) else None

    @property
    def renewal_interval(self) -> timedelta:
        """A third of the lease: two renewals may fail before it ends."""
        return self.lease / 3

    @property
    def statement_deadline(self) -> timedelta:
        """How long one statement of the runner's own may go without an answer: a third of the lease, from 5 s to 60 s.

        A renewal that is given up then leaves time for the next one. Below 15 s of lease it doesn't: a server that
        stalls for some seconds must not lose its clients over it. Above three minutes there is no reason to wait longer.
        """
        return min(max(self.lease / 3, SHORTEST_DEADLINE), LONGEST_DEADLINE)


def _check_queues(queues: object) -> None:
    if not isinstance(queues, Mapping):
        raise TypeError(
            f"queues={queues!r}: expected each queue's number of handlers, for example queues={{'default': 10}}"
        )
    if not queues:
        raise ValueError("queues is empty: name at least one, for example queues={'default': 10}")
    for queue, given in queues.items():
        check_name("queues", queue)
        if not isinstance(given, QueueSettings) and not _is_concurrency(given):
            raise ValueError(f"queues[{queue!r}]={given!r}: {_CONCURRENCY}")


def _is_concurrency(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST_CONCURRENCY
