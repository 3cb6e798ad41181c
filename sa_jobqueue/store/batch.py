"""Many jobs in little memory: what most of them have in common is there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.records import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Batch(Sequence[NewJob]):
    """A sequence of `NewJob` that grows at its end.

    A job takes its payload and two pointers here, as long as it differs from others in nothing else; each is made anew
    when somebody asks for it.
    """

    def __init__(self, new_jobs: Iterable[NewJob] = ()) -> None:
        self._payloads: list[str] = []
        self._others: list[tuple[Any, ...]] = []
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for new_job in new_jobs:
            self.append(new_job)

    def append(self, new_job: NewJob) -> None:
        """Add one."""
        others = new_job[1:]
        self._payloads.append(new_job[0])
        self._others.append(self._known.setdefault(others, others))

    def kinds(self) -> Iterator[NewJob]:
        """One job of each kind that differs from all others in more than the payload, which is empty."""
        return (_made("", others) for others in self._known)

    def __len__(self) -> int:
        return len(self._payloads)

    def __iter__(self) -> Iterator[NewJob]:
        return map(_made, self._payloads, self._others)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewJob]: ...

    def __getitem__(self, place: int | slice) -> NewJob | list[NewJob]:
        if isinstance(place, slice):
            return list(map(_made, self._payloads[place], self._others[place]))
        return _made(self._payloads[place], self._others[place])


def _made(payload: str, others: tuple[Any, ...]) -> NewJob:
    return NewJob._make((payload, *others))


def kinds_of(new_jobs: Sequence[NewJob]) -> Iterable[NewJob]:
    """One job of each kind that differs, where somebody knows; else all of them."""
    return new_jobs.kinds() if isinstance(new_jobs, Batch) else new_jobs
