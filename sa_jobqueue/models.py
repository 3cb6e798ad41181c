"""The mapped tables, on a MetaData of their own, and the schema they live in.

An application reads jobs through `Job` and points foreign keys at it (`ForeignKey(Job.__table__.c.id)`); rows are
written by the library's verbs only. Nothing here executes SQL.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    DateTime,
    FetchedValue,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_jobqueue import trigger
from sa_jobqueue.direct_inserts import refuse_unsafe
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.records import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Enqueued,
)
from sa_jobqueue.states import TERMINAL, JobStatus

#: The schema version that this release reads and writes; the migration steps write it as the table's comment.
SCHEMA_VERSION = 2
SCHEMA_COMMENT = "sa_jobqueue schema version {version}"

_TIMESTAMP = DateTime(timezone=True)
_NOW = text("now()")


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _none_yet(context: Any) -> None:
    """A function with a name, so that the metadata can be pickled."""
    refuse_unsafe(context, Job.__mapper__)


class Base(DeclarativeBase):
    """The library's own declarative base; an application keeps its own."""

    metadata: ClassVar[MetaData] = MetaData()


class Job(Base):
    """One job: a row of `jobqueue_jobs`. Made by `enqueue()`, changed by verbs, read like any mapped class."""

    __tablename__ = "jobqueue_jobs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=False), primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    queue: Mapped[str] = mapped_column(Text, server_default=text(f"'{DEFAULT_QUEUE}'"))
    payload: Mapped[Any] = mapped_column(
        JSONB, nullable=False, server_default=text("'{}'::jsonb"), deferred=True
    )
    payload_version: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    status: Mapped[str] = mapped_column(Text, server_default=text(f"'{JobStatus.READY}'"))
    priority: Mapped[int] = mapped_column(SmallInteger, server_default=text(f"{DEFAULT_PRIORITY}"))
    run_at: Mapped[datetime] = mapped_column(_TIMESTAMP, server_default=_NOW)
    expires_at: Mapped[datetime | None] = mapped_column(_TIMESTAMP)
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    returned: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    max_attempts: Mapped[int] = mapped_column(Integer, server_default=text(f"{DEFAULT_MAX_ATTEMPTS}"))
    lease_token: Mapped[UUID | None] = mapped_column(Uuid)
    lease_until: Mapped[datetime | None] = mapped_column(_TIMESTAMP)
    leased_by: Mapped[str | None] = mapped_column(Text)
    # Written by the end of a run alone, so that every INSERT of others asks for the default. It is no part of the schema.
    settled_token: Mapped[UUID | None] = mapped_column(Uuid, insert_default=_none_yet)
    cancel_requested_at: Mapped[datetime | None] = mapped_column(_TIMESTAMP)
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    key_scope: Mapped[str | None] = mapped_column(Text)
    unique_key: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text)
    result: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True, deferred=True)
    progress: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    last_error: Mapped[str | None] = mapped_column(Text)
    errors: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'::jsonb"), deferred=True)
    trace_context: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    created_at: Mapped[datetime] = mapped_column(_TIMESTAMP, server_default=_NOW)
    updated_at: Mapped[datetime] = mapped_column(
        _TIMESTAMP, server_default=_NOW, server_onupdate=FetchedValue()
    )
    finished_at: Mapped[datetime | None] = mapped_column(_TIMESTAMP)

    __table_args__: Any = (
        CheckConstraint(_one_of("status", tuple(JobStatus)), name="jobqueue_jobs_status_check"),
        CheckConstraint(
            f"priority BETWEEN {HIGHEST_PRIORITY} AND {LOWEST_PRIORITY}", name="jobqueue_jobs_priority_check"
        ),
        CheckConstraint("max_attempts >= 1", name="jobqueue_jobs_max_attempts_check"),
        CheckConstraint("returned BETWEEN 0 AND attempts", name="jobqueue_jobs_attempts_check"),
        CheckConstraint(
            f"CASE WHEN status = '{JobStatus.RUNNING}' THEN lease_token IS NOT NULL AND lease_until IS NOT NULL"
            " ELSE lease_token IS NULL AND lease_until IS NULL END",
            name="jobqueue_jobs_lease_check",
        ),
        CheckConstraint(
            f"({_one_of('status', TERMINAL)}) = (finished_at IS NOT NULL)",
            name="jobqueue_jobs_finished_check",
        ),
        CheckConstraint(
            "CASE WHEN idempotency_key IS NULL THEN key_scope IS NULL AND unique_key IS NULL"
            " ELSE key_scope IS NOT NULL AND key_scope IN ('row', 'unfinished') END",
            name="jobqueue_jobs_key_check",
        ),
        Index(
            "jobqueue_jobs_ready_idx",
            "queue",
            "priority",
            "run_at",
            "id",
            postgresql_where=text(f"status = '{JobStatus.READY}'"),
        ),
        Index(
            "jobqueue_jobs_running_idx",
            "lease_until",
            postgresql_where=text(f"status = '{JobStatus.RUNNING}'"),
        ),
        Index(
            "jobqueue_jobs_unique_key_idx",
            "unique_key",
            unique=True,
            postgresql_where=text("unique_key IS NOT NULL"),
        ),
        # The status first: what is kept for ever must not stand in the way of what is pruned.
        Index(
            "jobqueue_jobs_finished_idx",
            "status",
            "finished_at",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        {"comment": SCHEMA_COMMENT.format(version=SCHEMA_VERSION)},
    )

    def __init_subclass__(cls, **_: Any) -> None:
        # The library's INSERT knows this one table: what another class adds to it would be lost in silence.
        raise ConfigurationError(
            f"{cls.__qualname__} can't inherit from Job, whose rows the queue alone writes: keep what you add in a table of "
            "your own, with a foreign key to Job.__table__.c.id"
        )

    @property
    def enqueued(self) -> Enqueued | None:
        """Id and outcome, from the flush on; a plain record that outlives expiry, close and commit.

        Of the object that `enqueue()` returned alone: None before its flush, and for a job that was read from the
        database. A type checker is satisfied by `assert job.enqueued`.
        """
        enqueued: Enqueued | None = self.__dict__.get("_enqueued")
        return enqueued

    def __repr__(self) -> str:
        # Only what is loaded, so that a repr in a log line or a debugger never sends SQL; never the payload.
        loaded = {
            name: self.__dict__[name] for name in ("id", "kind", "queue", "status") if name in self.__dict__
        }
        return f"Job({', '.join(f'{name}={value!r}' for name, value in loaded.items())})"


class IdleRunner(Base):
    """A runner that waits for jobs: until then, unless it says so again, inserts of jobs are notified."""

    __tablename__ = "jobqueue_idle"

    runner_id: Mapped[str] = mapped_column(Text, primary_key=True)
    waiting_until: Mapped[datetime] = mapped_column(_TIMESTAMP)

    # After a crash nobody waits any more: it need not be in the log.
    __table_args__: Any = ({"prefixes": ["UNLOGGED"]},)


metadata: MetaData = Base.metadata
jobs: Table = metadata.tables["jobqueue_jobs"]
#: All but what is unbounded, or nearly so, and therefore mapped `deferred`: read when somebody asks for it.
SMALL_COLUMNS = tuple(column for column in jobs.c if column.name not in ("payload", "result", "errors"))
idle: Table = metadata.tables["jobqueue_idle"]
# Every job is updated at least twice: vacuum by row count, not by a share of a growing history. A statement of its own,
# since SQLAlchemy 2.0 knows no storage parameters of a Table.
event.listen(
    jobs,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy left its constructor untyped
        "ALTER TABLE %(fullname)s SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,"
        " autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05)"
    ),
)
# A few rows, each written once a second: room for their next versions in the same page.
event.listen(
    idle,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]  # as above
        "ALTER TABLE %(fullname)s SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0,"
        " autovacuum_vacuum_threshold = 500)"
    ),
)
# The trigger's function reads the one table and fires on the other: with the first it comes and goes.
idle.add_is_dependent_on(jobs)
event.listen(idle, "after_create", DDL(trigger.CREATE))  # type: ignore[no-untyped-call]  # as above
event.listen(idle, "before_drop", DDL(trigger.DROP))  # type: ignore[no-untyped-call]  # as above

_in_use = False


def configure(*, schema: str | None) -> None:
    """Choose the database schema of the queue's tables, once, before anything used them.

    The same name goes into the migration: `op.migrate_jobqueue(0, 2, schema=...)`. Without a call the environment
    variable `SA_JOBQUEUE_SCHEMA` decides, else the tables are found through `search_path`. Raises ConfigurationError
    when statements for another schema have been built already.
    """
    if schema is not None and (not schema or "\0" in schema):
        raise ConfigurationError(f"configure(schema=...): expected a schema name or None, got {schema!r}")
    if schema == metadata.schema:
        return
    if _in_use:
        raise ConfigurationError(
            f"the queue's schema is already in use as {metadata.schema!r} and can't become {schema!r}: call "
            "sa_jobqueue.configure(schema=...) at import time, before the first job, session or runner uses it, "
            "or set SA_JOBQUEUE_SCHEMA"
        )
    # SQLAlchemy has no public call that moves a Table; statements compile from these attributes, and none exists yet.
    for table in tuple(metadata.tables.values()):
        metadata.remove(table)
        table.schema = schema
        table.fullname = table.name if schema is None else f"{schema}.{table.name}"
        metadata._add_table(table.name, schema, table)  # noqa: SLF001
    metadata.schema = schema


def schema_in_use() -> str | None:
    """The schema of the tables, fixed from this call on: whoever builds a statement asks here first."""
    global _in_use
    _in_use = True
    return metadata.schema


configure(schema=os.environ.get("SA_JOBQUEUE_SCHEMA") or None)
