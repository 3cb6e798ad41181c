"""Inserting jobs, keyed or not: every key ends up held by exactly one row, and everybody is told by which."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import TwoPhaseTransaction
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.batch import Batch, distinct, payloads_of
from sa_jobqueue.errors import EnqueueError
from sa_jobqueue.failures import hide_values
from sa_jobqueue.models import jobs
from sa_jobqueue.queries.keys import ids_that_are_there
from sa_jobqueue.queries.session import unheard
from sa_jobqueue.records import Enqueued, Inserted
from sa_jobqueue.statements.insert import SHOWN, insert_job, insert_parameter, insert_parameters
from sa_jobqueue.statements.insert import insert_jobs as insert_statement
from sa_jobqueue.store.callers_connection import in_autocommit
from sa_jobqueue.store.conflicts import answer_held, holders, refusal, with_buckets
from sa_jobqueue.store.same_key import arranged, is_changed, parts, refused
from sa_jobqueue.store.schema import cure, place
from sa_jobqueue.store.trouble import sqlstate_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from sa_jobqueue.records import NewJob
    from sa_jobqueue.store.same_key import Sending

#: Bounds of one statement: more jobs are no faster, and more text would near the gigabyte that an array can take.
CHUNK, CHUNK_TEXT = 5_000, 32 * 1024 * 1024
#: A key that is neither free nor held, this many times in a row, is held and released by others in the meantime.
ROUNDS = 20
_UNDEFINED_TABLE, _UNDEFINED_COLUMN = "42P01", "42703"

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class _Form(Generic[AnswerT]):
    """What the caller gets for each job: of a row that has just been inserted, and of any answer about a key."""

    shown: bool
    of_row: Callable[[Any], AnswerT]
    of_answer: Callable[[Inserted], AnswerT]


def insert_jobs(connection: Connection, new_jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert what has no key or a free one, and do about the others what their `on_conflict` says.

    Answers in the order of `new_jobs`; all in the connection's transaction, as if they came one after another.
    Keyed rows are taken in the order of their keys, so that two calls at once can't deadlock on them. Waits where an
    open transaction has just inserted the same key, and where a waiting job that is to change is locked. In a two-phase
    transaction the jobs wake no runner, for PostgreSQL refuses to prepare one that notifies: the next poll finds them.

    Raises DuplicateKeyError where that was asked for: nothing has been inserted or changed then, and the transaction can
    go on. Raises EnqueueError for a database other than PostgreSQL, before any SQL, and when a trigger or rule swallows
    rows. No text of a database's error holds values of a job; its `params` and the driver's diagnostics still do.
    """
    return _insert(connection, new_jobs, _SHOWN)


def enqueue_jobs(connection: Connection, new_jobs: Batch) -> list[Enqueued]:
    """The same, where no object is going to show the rows: answers with what the caller is told, and no more."""
    return _insert(connection, new_jobs, _TOLD)


def stored_ids(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Those of the ids that the transaction sees a row of."""
    return list(connection.execute(ids_that_are_there(), {"ids": ids}).scalars())


def _insert(connection: Connection, new_jobs: Sequence[NewJob], form: _Form[AnswerT]) -> list[AnswerT]:
    if connection.dialect.name != "postgresql":
        raise EnqueueError(
            f"jobs live in PostgreSQL, and this connection goes to {connection.dialect.name}: bind the Job class to "
            "its database, Session(binds={Job: engine}), or pass a connection to it"
        )
    try:
        # Each time: a savepoint that is rolled back takes the setting along.
        if new_jobs and isinstance(connection.get_transaction(), TwoPhaseTransaction):
            connection.execute(unheard())
        new_jobs = with_buckets(connection, new_jobs)
        with _as_a_whole(connection, new_jobs):
            return _insert_all(connection, new_jobs, form)
    except DBAPIError as error:
        hide_values(error)  # payloads, and error texts end up in logs
        if _lacks_table(error):
            # A part of its text, which a note is not.
            error.add_detail(
                f"the table of the job queue is missing {place()}, or older than this release: {cure()}; where it is in "
                "another database of a session with several, bind the class to that: Session(binds={Job: engine, ...})"
            )
        raise


def _as_a_whole(connection: Connection, new_jobs: Sequence[NewJob]) -> AbstractContextManager[Any]:
    """A savepoint where a duplicate may stop the call half-way; a single job has written nothing by then."""
    if len(new_jobs) < 2 or all(one.on_conflict != "raise" for one in distinct(new_jobs)):
        return nullcontext()
    if in_autocommit(connection):
        raise EnqueueError(
            'several jobs with on_conflict="raise" among them are inserted all or none, and on a connection in AUTOCOMMIT '
            "each statement stands alone: begin a transaction, or enqueue one by one"
        )
    return connection.begin_nested()


def _insert_all(connection: Connection, new_jobs: Sequence[NewJob], form: _Form[AnswerT]) -> list[AnswerT]:
    sending = arranged(new_jobs)
    answers, free = _answers(connection, sending, form)
    if not sending.keyed:
        return free
    jobs_of = {at: [new_jobs[position] for position in group] for at, group in sending.same.items()}
    lacking: list[str] = []
    for at in range(sending.keyed):
        same = jobs_of.get(at) or [sending.sent[at]]
        if places := refused(same, answers[at]):
            group = sending.same.get(at) or [sending.positions[at]]
            raise refusal(sending.sent[at], answers[at], [group[place] for place in places])
        if answers[at].created and is_changed(same):
            lacking.append(sending.sent[at].unique_key or "")
    rows = holders(connection, lacking) if lacking else {}
    told = dict(zip(sending.positions[sending.keyed :], free, strict=True))
    for at in range(sending.keyed):
        if (shared := jobs_of.get(at)) is None:
            told[sending.positions[at]] = form.of_answer(answers[at])
            continue
        each = parts(shared, answers[at], rows.get(sending.sent[at].unique_key or ""))
        told.update(zip(sending.same[at], map(form.of_answer, each), strict=True))
    return [told[position] for position in range(len(new_jobs))]


def _answers(
    connection: Connection, sending: Sending, form: _Form[AnswerT]
) -> tuple[dict[int, Inserted], list[AnswerT]]:
    """By place what is told of each key, and of all without a key in their order.

    Repeats insert and read until every key has answered: a holder may vanish between the two. All that can be inserted
    comes before all that is changed, each in the order of the keys: who waits for a row that another call changes has
    nothing that this one waits for.
    """
    answers: dict[int, Inserted] = {}
    free: list[AnswerT] = []
    missing: Sequence[int] = range(len(sending.sent))
    for _ in range(ROUNDS):
        for places, new_jobs in _chunks(sending.sent, missing):
            keyed = _places(places, new_jobs) if sending.keyed else {}
            rows = _insert_once(connection, new_jobs, form.shown)
            # Ids are given out in the order of the INSERT, but RETURNING promises no order of its own.
            without_key = sorted((row for row in rows if row[1] is None), key=itemgetter(0))
            _check_count(len(places) - len(keyed), len(without_key))
            free += map(form.of_row, without_key)
            if isinstance(sending.sent, Batch):  # without keys nothing is sent twice
                sending.sent.forget(slice(places[0], places[-1] + 1))
            if keyed:
                answers |= {keyed[row[1]]: _created(row) for row in rows if row[1] is not None}
        missing = [at for at in range(sending.keyed) if at not in answers]
        for places, new_jobs in _chunks(sending.sent, missing):
            held = _places(places, new_jobs)
            told = answer_held(connection, dict(zip(held, new_jobs, strict=True)))
            answers |= {held[key]: answer for key, answer in told.items()}
        if not (missing := [at for at in missing if at not in answers]):
            return answers, free
    raise _unanswered(connection, sending.sent[missing[0]])


def _places(places: Sequence[int], new_jobs: Sequence[NewJob]) -> dict[str, int]:
    """Where each key stands."""
    return {
        key: at
        for at, new_job in zip(places, new_jobs, strict=True)
        if (key := new_job.unique_key) is not None
    }


def _insert_once(connection: Connection, new_jobs: Sequence[NewJob], shown: bool) -> Sequence[Any]:
    if len(new_jobs) == 1:
        alone = new_jobs[0]
        statement = insert_job(keyed=alone.idempotency_key is not None, shown=shown)
        return connection.execute(statement, insert_parameter(alone)).all()
    return connection.execute(insert_statement(shown=shown), insert_parameters(new_jobs)).all()


def _check_count(sent: int, came_back: int) -> None:
    if sent != came_back:
        raise EnqueueError(
            f"{sent} jobs were sent and {came_back} rows came back: does a trigger, a rule or a row "
            "security policy on the job table swallow them?"
        )


def _unanswered(connection: Connection, new_job: NewJob) -> EnqueueError:
    """Why a key has not answered, as far as anybody can tell."""
    key = new_job.unique_key or ""
    if (holder := holders(connection, [key]).get(key)) is None:
        return EnqueueError(
            f"the idempotency key {new_job.idempotency_key!r} was neither free nor held in {ROUNDS} rounds: does a trigger, "
            "a rule or a row security policy on the job table hide rows? Else somebody takes and releases it all the "
            "time: enqueue the job again"
        )
    return EnqueueError(
        f"job {holder['id']} has the idempotency key {new_job.idempotency_key!r}, and {ROUNDS} rounds could not change it: "
        "does a trigger, a rule or a row security policy on the job table keep it as it is? Else somebody takes and "
        "returns it all the time: enqueue the job again"
    )


def _created(row: Any) -> Inserted:
    shown: dict[str, Any] = dict(zip(SHOWN, row, strict=False))  # a brief answer has the first of them alone
    return Inserted(row[0], "created", shown)


_SHOWN = _Form(shown=True, of_row=_created, of_answer=lambda answer: answer)
_TOLD = _Form(
    shown=False,
    of_row=lambda row: Enqueued(row[0], "created"),
    of_answer=lambda answer: answer.told,
)


def _chunks(
    new_jobs: Sequence[NewJob], places: Sequence[int]
) -> Iterator[tuple[Sequence[int], Sequence[NewJob]]]:
    """The jobs at these places, as many at a time as one statement takes."""
    if not places:
        return
    if len(places) < len(new_jobs):
        new_jobs = [new_jobs[at] for at in places]
    begin, text = 0, 0
    for at, size in enumerate(map(len, payloads_of(new_jobs))):
        if at > begin and (at - begin == CHUNK or text + size > CHUNK_TEXT):
            yield places[begin:at], new_jobs[begin:at]
            begin, text = at, 0
        text += size
    yield places[begin:], new_jobs[begin:]


def _lacks_table(error: DBAPIError) -> bool:
    """The table, or a column of it, isn't there; a trigger of the application may miss one of its own."""
    return sqlstate_of(error) in (_UNDEFINED_TABLE, _UNDEFINED_COLUMN) and jobs.name in str(error.orig)
