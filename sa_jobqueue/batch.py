"""Many jobs in little memory: what most of them have in common is there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from sa_jobqueue.records import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Batch(Sequence[NewJob]):
    """A sequence of `NewJob` that grows at its end.

    A job takes its payload and two pointers here, as long as others are like it in everything else; it is made anew
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

    def __len__(self) -> int:
        return len(self._payloads)

    def __iter__(self) -> Iterator[NewJob]:
        return map(_made, self._payloads, self._others)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...

    @overload
    def __getitem__(self, place: slice) -> Batch: ...

    def __getitem__(self, place: int | slice) -> NewJob | Batch:
        if isinstance(place, int):
            return _made(self._payloads[place], self._others[place])
        part = Batch()
        part._payloads, part._others = self._payloads[place], self._others[place]
        part._known = {others: others for others in set(part._others)}
        return part

    def kinds(self) -> Iterator[NewJob]:
        """One job of each kind that differs from all others in more than the payload, which is empty here."""
        return (_made("", others) for others in self._known)

    def payloads(self) -> Sequence[str]:
        """The JSON texts, in the order of the jobs."""
        return self._payloads

    def forget(self, places: slice) -> None:
        """Let go of the payloads there, which have been sent and are empty from now on."""
        self._payloads[places] = [""] * len(self._payloads[places])

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """All values of each field, in the order of the jobs."""
        if len(self._known) == 1:
            rest: Iterable[Sequence[Any]] = ([value] * len(self) for value in self._others[0])
        else:
            rest = zip(*self._others, strict=True)
        return dict(zip(NewJob._fields, [self._payloads, *rest], strict=True))


def _made(payload: str, others: tuple[Any, ...]) -> NewJob:
    return tuple.__new__(NewJob, (payload, *others))


def kinds_of(new_jobs: Sequence[NewJob]) -> Iterable[NewJob]:
    """Jobs among which there is one of each kind that differs in more than the payload."""
    return new_jobs.kinds() if isinstance(new_jobs, Batch) else new_jobs


def payloads_of(new_jobs: Sequence[NewJob]) -> Sequence[str]:
    """The JSON texts of these jobs, in their order."""
    return new_jobs.payloads() if isinstance(new_jobs, Batch) else [new_job.payload for new_job in new_jobs]


def columns_of(new_jobs: Sequence[NewJob]) -> Mapping[str, Sequence[Any]]:
    """All values of each field of one or more jobs, in their order."""
    if isinstance(new_jobs, Batch):
        return new_jobs.columns()
    return dict(zip(NewJob._fields, zip(*new_jobs, strict=True), strict=True))
