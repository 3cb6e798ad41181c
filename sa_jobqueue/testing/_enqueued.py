"""`assert_enqueued()` and its kin: which jobs are there, in the transaction of the test."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, overload

from sqlalchemy.orm import Session

from sa_jobqueue.queries.stored import stored_jobs
from sa_jobqueue.states import JobStatus
from sa_jobqueue.store.sessions import connection_of, run_on
from sa_jobqueue.testing._filters import ANYTHING, Filters, StoredJob, shown, wanted_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from sqlalchemy import Connection

    from sa_jobqueue.handlers import Handler
    from sa_jobqueue.records import HandlerCall
    from sa_jobqueue.store.sessions import AsyncTarget, SyncTarget
    from sa_jobqueue.testing._filters import Wanted

    Kind = str | Handler[..., ..., Any] | HandlerCall | None

#: A failure shows the nearest of so many jobs, and so many of them.
_LOOKED_AT, _SHOWN = 1000, 5


@overload
def assert_enqueued(
    target: SyncTarget, kind: Kind = ..., payload: Any = ..., *, count: None = ..., **filters: Unpack[Filters]
) -> StoredJob: ...


@overload
def assert_enqueued(
    target: SyncTarget, kind: Kind = ..., payload: Any = ..., *, count: int, **filters: Unpack[Filters]
) -> list[StoredJob]: ...


@overload
def assert_enqueued(
    target: AsyncTarget,
    kind: Kind = ...,
    payload: Any = ...,
    *,
    count: None = ...,
    **filters: Unpack[Filters],
) -> Coroutine[Any, Any, StoredJob]: ...


@overload
def assert_enqueued(
    target: AsyncTarget, kind: Kind = ..., payload: Any = ..., *, count: int, **filters: Unpack[Filters]
) -> Coroutine[Any, Any, list[StoredJob]]: ...


def assert_enqueued(
    target: Any,
    kind: Any = None,
    payload: Any = ANYTHING,
    *,
    count: int | None = None,
    **filters: Unpack[Filters],
) -> Any:
    """Fail the test unless such a job is enqueued; the message shows the nearest ones and in what they differ.

        assert_enqueued(session, "document.embed", {"document_id": 7}, queue="ai")
        job = assert_enqueued(session, embed.call(document_id=7))
        await assert_enqueued(async_session, embed, count=2)

    `kind` is a kind, a handler (its aliases will do as well) or a call of one, whose arguments are the payload. Of
    `payload` every given field must be there and equal, nested objects likewise; anything else is compared by ==, lists
    as a whole, so that `unittest.mock.ANY` and `pytest.approx()` work. Beside a handler the fields may be given as its
    annotations have them (a UUID, a datetime); beside a kind they are JSON. Further filters: `queue`, `priority`, `run_at`
    (a time, or a time and a tolerance), `delay`, `key` (None: without one) and `status`, which is "ready" (due or not)
    unless another is given; None stands for any.

    What counts is what the transaction of `target` sees: uncommitted jobs too, and those that are only pending in its
    Session, which is flushed first, as by a query. Gives the first such job; with `count`, all of them, when there are
    exactly so many. Raises AssertionError, and TypeError or ValueError for arguments that can't work.
    """
    __tracebackhide__ = True
    wanted = wanted_of(kind, payload, filters, caller="assert_enqueued")
    return _judged(target, _Expected(wanted, count), "assert_enqueued")


@overload
def refute_enqueued(
    target: SyncTarget, kind: Kind = ..., payload: Any = ..., **filters: Unpack[Filters]
) -> None: ...


@overload
def refute_enqueued(
    target: AsyncTarget, kind: Kind = ..., payload: Any = ..., **filters: Unpack[Filters]
) -> Coroutine[Any, Any, None]: ...


def refute_enqueued(
    target: Any, kind: Any = None, payload: Any = ANYTHING, **filters: Unpack[Filters]
) -> Any:
    """Fail the test when such a job is enqueued; the arguments are those of `assert_enqueued()`.

        refute_enqueued(session, "document.embed")

    Without arguments no ready job at all may be there. Raises AssertionError, whose message shows the jobs.
    """
    __tracebackhide__ = True
    wanted = wanted_of(kind, payload, filters, caller="refute_enqueued")
    return _judged(target, _Refused(wanted), "refute_enqueued")


@overload
def all_enqueued(
    target: SyncTarget, kind: Kind = ..., payload: Any = ..., **filters: Unpack[Filters]
) -> list[StoredJob]: ...


@overload
def all_enqueued(
    target: AsyncTarget, kind: Kind = ..., payload: Any = ..., **filters: Unpack[Filters]
) -> Coroutine[Any, Any, list[StoredJob]]: ...


def all_enqueued(target: Any, kind: Any = None, payload: Any = ANYTHING, **filters: Unpack[Filters]) -> Any:
    """The jobs that `assert_enqueued()` would find, by id, for assertions of your own:

        assert [job.payload for job in all_enqueued(session, "mail.send")] == [{"to": 1}, {"to": 2}]

    The arguments are those of `assert_enqueued()`.
    """
    wanted = wanted_of(kind, payload, filters, caller="all_enqueued")
    return run_on(target, lambda given: _matching(given, wanted), caller="all_enqueued")


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed assertion as a value, raised where the traceback is short."""

    message: str


@dataclass(frozen=True, slots=True)
class _Expected:
    wanted: Wanted
    count: int | None

    def __call__(self, given: Session | Connection) -> Any:
        found = _matching(given, self.wanted)
        if self.count is None and found:
            return found[0]
        if self.count is not None and self.count == len(found):
            return found
        expected = "such a job" if self.count is None else _number(self.count, self.wanted)
        lines = [f"expected {expected}, found {len(found) or 'none'}"]
        lines += ["  looked for:", *self.wanted.lines(), *_listed(found), *self._nearest(given)]
        return _Failure("\n".join(lines))

    def _nearest(self, given: Session | Connection) -> list[str]:
        """What else is there, the most alike first."""
        others = [
            (job, misses)
            for job in _read(given, amount=_LOOKED_AT, kinds=None, queues=None, statuses=None)
            if (misses := self.wanted.misses(job))
        ]
        if not others:
            return ["  there are no others that this transaction sees"]
        names = self.wanted.names
        others.sort(key=lambda other: (names is not None and other[0].kind not in names, len(other[1])))
        lines = [f"    job {job.id} {job.kind!r}: {', '.join(misses)}" for job, misses in others[:_SHOWN]]
        return [
            "  the nearest of the others:" if len(others) > _SHOWN else "  the others, the nearest first:",
            *lines,
        ]


@dataclass(frozen=True, slots=True)
class _Refused:
    wanted: Wanted

    def __call__(self, given: Session | Connection) -> Any:
        if not (found := _matching(given, self.wanted)):
            return None
        lines = [f"expected no such job, found {len(found)}", "  looked for:", *self.wanted.lines()]
        return _Failure("\n".join([*lines, *_listed(found)]))


def _matching(given: Session | Connection, wanted: Wanted) -> list[StoredJob]:
    """By id."""
    jobs = _read(given, amount=None, **wanted.parameters())
    return [job for job in reversed(jobs) if not wanted.misses(job)]


def _read(given: Session | Connection, **parameters: Any) -> list[StoredJob]:
    if isinstance(given, Session):
        given.flush()
    jobs = []
    for row in connection_of(given).execute(stored_jobs(), parameters).mappings():
        values: dict[str, Any] = {**row, "status": JobStatus(row["status"])}
        jobs.append(StoredJob(**values))
    return jobs


def _number(count: int, wanted: Wanted) -> str:
    status = "" if wanted.status is None else f"{wanted.status} "
    return f"{count} {status}job{'' if count == 1 else 's'}"


def _listed(found: Sequence[StoredJob]) -> list[str]:
    lines = []
    for job in found[:_SHOWN]:
        key = "" if job.idempotency_key is None else f" key={job.idempotency_key!r}"
        lines.append(f"    job {job.id} {job.kind!r} in {job.queue!r}{key}: {shown(job.payload)}")
    if len(found) > _SHOWN:
        lines.append(f"    and {len(found) - _SHOWN} more")
    return ["  found:", *lines] if lines else []


def _judged(target: Any, look: _Expected | _Refused, caller: str) -> Any:
    __tracebackhide__ = True
    answer = run_on(target, look, caller=caller)
    if inspect.iscoroutine(answer):
        answer.close()  # asked again when it is awaited: a forgotten await is one warning, not two
        return _judged_later(target, look, caller)
    return _raised(answer)


def _judged_later(target: Any, look: _Expected | _Refused, caller: str) -> Coroutine[Any, Any, Any]:
    async def judged() -> Any:
        __tracebackhide__ = True
        return _raised(await run_on(target, look, caller=caller))

    judged.__qualname__ = caller  # Python's warning of a forgotten await tells it
    return judged()


def _raised(answer: Any) -> Any:
    __tracebackhide__ = True
    if isinstance(answer, _Failure):
        raise AssertionError(answer.message)
    return answer
