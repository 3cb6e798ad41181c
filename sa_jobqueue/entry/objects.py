"""The Job objects that go through one call of `enqueue_many()`: no two are the same, and each has its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sa_jobqueue.models import Job

#: So many entries of jobs that are gone are no trouble.
_GONE = 5_000


class Objects(Protocol):
    """Takes one job after the other."""

    def add(self, job: Job) -> bool:
        """Take the next one; False for one that has been taken before."""
        ...

    def there(self) -> Iterator[tuple[int, Job]]:
        """Each with its position from 0, without those that nobody has any more."""
        ...


class Listed:
    """Those of a list: whoever has it has the jobs."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._identities: set[int] = set()

    def add(self, job: Job) -> bool:
        before = len(self._identities)
        self._identities.add(id(job))
        return len(self._identities) > before

    def there(self) -> Iterator[tuple[int, Job]]:
        return enumerate(self._jobs)


class Passing:
    """Those of an iterator, which are held no longer than others hold them."""

    def __init__(self) -> None:
        self._count = 0
        self._known: dict[int, tuple[int, ref[Job]]] = {}
        self._most = _GONE

    def add(self, job: Job) -> bool:
        # The identity of one that is gone may be that of another now.
        if (known := self._known.get(id(job))) is not None and known[1]() is job:
            return False
        self._known[id(job)] = (self._count, ref(job))
        self._count += 1
        if len(self._known) > self._most:
            self._known = {key: entry for key, entry in self._known.items() if entry[1]() is not None}
            self._most = 2 * len(self._known) + _GONE
        return True

    def there(self) -> Iterator[tuple[int, Job]]:
        for position, reference in self._known.values():
            if (job := reference()) is not None:
                yield position, job
