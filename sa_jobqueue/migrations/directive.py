"""`op.migrate_jobqueue(from, to, schema=...)`: runs the steps between two versions, in either direction."""

from __future__ import annotations

from typing import Any, Protocol

from alembic.operations import MigrateOperation, Operations
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.migrations.steps import LATEST, STEPS


class Invokes(Protocol):
    """What carries out operations: `alembic.op` in a revision, or an `Operations` object."""

    def invoke(self, operation: MigrateOperation) -> Any:
        """Carry out one operation."""
        ...


def migrate_jobqueue(
    op: Invokes,
    from_version: int,
    to_version: int,
    *,
    schema: str | None = None,
    drop_jobs: bool = False,
) -> None:
    """Bring the queue's tables from one version to another; a lower target downgrades.

    The same as `op.migrate_jobqueue(...)`, in a form that type checkers know. `schema` names the PostgreSQL schema, which
    is created when it is missing and left by a downgrade; None leaves it to `search_path`. A downgrade that would drop
    jobs is refused by the database, which stays as it is, unless `drop_jobs` says that they may go. Raises ValueError
    for versions that this release does not have, before anything is changed.
    """
    op.invoke(MigrateJobqueueOp(from_version, to_version, schema=schema, drop_jobs=drop_jobs))


@Operations.register_operation("migrate_jobqueue")
class MigrateJobqueueOp(MigrateOperation):
    """The directive as an Alembic operation."""

    def __init__(
        self, from_version: int, to_version: int, *, schema: str | None = None, drop_jobs: bool = False
    ) -> None:
        self.from_version = from_version
        self.to_version = to_version
        self.schema = schema
        self.drop_jobs = drop_jobs

    @classmethod
    def migrate_jobqueue(
        cls,
        operations: Operations,
        from_version: int,
        to_version: int,
        *,
        schema: str | None = None,
        drop_jobs: bool = False,
    ) -> None:
        """Run the queue's own steps from one version to another (see `sa_jobqueue.migrations`)."""
        migrate_jobqueue(operations, from_version, to_version, schema=schema, drop_jobs=drop_jobs)

    def reverse(self) -> MigrateJobqueueOp:
        """The way back; never one that drops jobs."""
        return MigrateJobqueueOp(self.to_version, self.from_version, schema=self.schema)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("migrate_jobqueue", self.from_version, self.to_version)


@Operations.implementation_for(MigrateJobqueueOp)
def _migrate(operations: Operations, operation: MigrateJobqueueOp) -> None:
    _check(operation)
    from_version, to_version, schema = operation.from_version, operation.to_version, operation.schema
    try:
        if from_version <= to_version:
            for step in STEPS[from_version:to_version]:
                step.upgrade(operations, schema)
        else:
            for step in reversed(STEPS[to_version:from_version]):
                step.downgrade(operations, schema, drop_jobs=operation.drop_jobs)
    except DBAPIError as error:
        if cure := _cure(operation, _sqlstate(error)):
            error.add_note(cure)
        raise


def _check(operation: MigrateJobqueueOp) -> None:
    for name, version in (("from", operation.from_version), ("to", operation.to_version)):
        if type(version) is not int or not 0 <= version <= LATEST:
            raise ValueError(
                f"migrate_jobqueue({operation.from_version!r}, {operation.to_version!r}): the {name} version must be a "
                f"whole number from 0 to {LATEST}; a higher one needs a newer release of sa_jobqueue"
            )


def _cure(operation: MigrateJobqueueOp, sqlstate: str) -> str | None:
    """What to do about an answer of the server that a step can meet; None for others."""
    schema, version = operation.schema, operation.from_version
    place = "the schemas of search_path" if schema is None else f"the schema {schema!r}"
    argument = "" if schema is None else f", schema={schema!r}"
    match sqlstate:
        case "42P07":  # duplicate_table
            return (
                "the queue's tables are there already: another revision or metadata.create_all() made them. If it was "
                "this release's, mark this revision as done: alembic stamp <revision>"
            )
        case "3F000" if schema is None:  # invalid_schema_name
            return (
                "search_path leads to no schema that exists: name one in the revision, which is created when it is "
                f"missing: op.migrate_jobqueue({version}, {operation.to_version}, schema='jobs')"
            )
        case "42P01" | "3F000":  # undefined_table
            return (
                f"this revision expects version {version} of the queue's tables in {place}: an earlier revision makes "
                f"them with op.migrate_jobqueue(0, {version}{argument})"
            )
        case "42501":  # insufficient_privilege
            return (
                f"the role of this migration may not do that in {place}: let their owner run it, or grant the right "
                "(GRANT CREATE ON DATABASE for a schema that is to be made, GRANT CREATE ON SCHEMA for tables in one)"
            )
    return None


def _sqlstate(error: DBAPIError) -> str:
    """The server's code: psycopg 3 and asyncpg say sqlstate, psycopg2 pgcode."""
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""
