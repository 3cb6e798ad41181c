"""Inserting jobs, keyed or not: every key ends up held by exactly one row, and everybody is told by which."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sqlalchemy import TwoPhaseTransaction
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import EnqueueError
from sa_jobqueue.failures import hide_values
from sa_jobqueue.models import jobs
from sa_jobqueue.queries.session import unheard
from sa_jobqueue.records import Inserted
from sa_jobqueue.statements.insert import insert_jobs as insert_statement
from sa_jobqueue.statements.insert import insert_parameters
from sa_jobqueue.store.callers_connection import in_autocommit
from sa_jobqueue.store.conflicts import answer_held, holders, refusal, with_buckets
from sa_jobqueue.store.same_key import folded, grouped, is_changed, parts, refused
from sa_jobqueue.store.schema import cure, place
from sa_jobqueue.store.trouble import sqlstate_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from sa_jobqueue.records import NewJob

#: Bounds of one statement: more jobs are no faster, and more text would near the gigabyte that an array can take.
CHUNK, CHUNK_TEXT = 5_000, 32 * 1024 * 1024
#: A key that is neither free nor held, this many times in a row, is held and released by others in the meantime.
ROUNDS = 20
_UNDEFINED_TABLE, _UNDEFINED_COLUMN = "42P01", "42703"

Answers = dict[int, Inserted]


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
            return _insert_all(connection, new_jobs)
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
    if len(new_jobs) < 2 or all(new_job.on_conflict != "raise" for new_job in new_jobs):
        return nullcontext()
    if in_autocommit(connection):
        raise EnqueueError(
            'several jobs with on_conflict="raise" among them are inserted all or none, and on a connection in AUTOCOMMIT '
            "each statement stands alone: begin a transaction, or enqueue one by one"
        )
    return connection.begin_nested()


def _insert_all(connection: Connection, new_jobs: Sequence[NewJob]) -> list[Inserted]:
    groups = grouped(new_jobs)
    jobs_of = [[new_jobs[position] for position in group] for group in groups]
    sent = [folded(same) for same in jobs_of]
    answers = _answers(connection, sent)
    lacking: list[str] = []
    for at, (group, same) in enumerate(zip(groups, jobs_of, strict=True)):
        if same[0].idempotency_key is None:
            break  # all that follow have none either
        if places := refused(same, answers[at]):
            raise refusal(sent[at], answers[at], [group[place] for place in places])
        if answers[at].created and is_changed(same):
            lacking.append(sent[at].unique_key or "")
    rows = holders(connection, lacking) if lacking else {}
    told: Answers = {}
    for at, (group, same) in enumerate(zip(groups, jobs_of, strict=True)):
        if len(group) == 1:
            told[group[0]] = answers[at]
            continue
        told.update(zip(group, parts(same, answers[at], rows.get(sent[at].unique_key or "")), strict=True))
    return [told[position] for position in range(len(new_jobs))]


def _answers(connection: Connection, sent: Sequence[NewJob]) -> Answers:
    """Repeat insert and read until every key has answered: a holder may vanish between the two.

    All that can be inserted comes before all that is changed, each in the order of the keys: who waits for a row that
    another call changes has nothing that this one waits for.
    """
    answers: Answers = {}
    missing = list(range(len(sent)))
    for _ in range(ROUNDS):
        for chunk in _chunks(sent, missing):
            _insert_once(connection, sent, chunk, answers)
        missing = [at for at in missing if at not in answers]
        for chunk in _chunks(sent, missing):
            held = {sent[at].unique_key or "": at for at in chunk}
            told = answer_held(connection, {key: sent[at] for key, at in held.items()})
            answers |= {held[key]: answer for key, answer in told.items()}
        if not (missing := [at for at in missing if at not in answers]):
            return answers
    raise _unanswered(connection, sent[missing[0]])


def _insert_once(
    connection: Connection, new_jobs: Sequence[NewJob], chunk: list[int], answers: Answers
) -> None:
    rows = connection.execute(insert_statement(), insert_parameters([new_jobs[at] for at in chunk])).all()
    by_key: dict[str, int] = {}
    free: list[int] = []
    for position in chunk:
        if (key := new_jobs[position].unique_key) is None:
            free.append(position)
        else:
            by_key[key] = position
    without_key = []
    for row in rows:
        if row.unique_key is None:
            without_key.append(row)
        else:
            answers[by_key[row.unique_key]] = _created(row)
    if len(without_key) != len(free):
        raise EnqueueError(
            f"{len(free)} jobs were sent and {len(without_key)} rows came back: does a trigger, a rule or a row "
            "security policy on the job table swallow them?"
        )
    # Ids are given out in the order of the INSERT, but RETURNING promises no order of its own.
    for position, row in zip(free, sorted(without_key, key=lambda row: row.id), strict=True):
        answers[position] = _created(row)


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
    id_, unique_key, run_at, created_at, updated_at = row
    values = {
        "id": id_,
        "unique_key": unique_key,
        "run_at": run_at,
        "created_at": created_at,
        "updated_at": updated_at,
    }
    return Inserted(id_, "created", values)


def _chunks(new_jobs: Sequence[NewJob], positions: list[int]) -> Iterator[list[int]]:
    chunk: list[int] = []
    text = 0
    for position in positions:
        size = len(new_jobs[position].payload)
        if chunk and (len(chunk) == CHUNK or text + size > CHUNK_TEXT):
            yield chunk
            chunk, text = [], 0
        chunk.append(position)
        text += size
    if chunk:
        yield chunk


def _lacks_table(error: DBAPIError) -> bool:
    """The table, or a column of it, isn't there; a trigger of the application may miss one of its own."""
    return sqlstate_of(error) in (_UNDEFINED_TABLE, _UNDEFINED_COLUMN) and jobs.name in str(error.orig)
