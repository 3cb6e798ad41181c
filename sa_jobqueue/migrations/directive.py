"""`op.migrate_jobqueue(from, to, schema=...)`: runs the steps between two versions, in either direction."""

from __future__ import annotations

from typing import Any

from alembic.operations import MigrateOperation, Operations

from sa_jobqueue.migrations.steps import LATEST, STEPS


def migrate_jobqueue(
    operations: Operations,
    from_version: int,
    to_version: int,
    *,
    schema: str | None = None,
    drop_jobs: bool = False,
) -> None:
    """Bring the queue's tables from one version to another; a lower target downgrades.

    `schema` names the PostgreSQL schema, which must exist; None leaves it to `search_path`. A downgrade that would drop
    jobs is refused by the database, which stays as it is, unless `drop_jobs` says that they may go. Raises ValueError
    for versions that this release does not have, before anything is changed.
    """
    for name, version in (("from", from_version), ("to", to_version)):
        if type(version) is not int or not 0 <= version <= LATEST:
            raise ValueError(
                f"migrate_jobqueue({from_version!r}, {to_version!r}): the {name} version must be a whole number from 0 "
                f"to {LATEST}; a higher one needs a newer release of sa_jobqueue"
            )
    if from_version <= to_version:
        for step in STEPS[from_version:to_version]:
            step.upgrade(operations, schema)
    else:
        for step in reversed(STEPS[to_version:from_version]):
            step.downgrade(operations, schema, drop_jobs=drop_jobs)


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
        operations.invoke(cls(from_version, to_version, schema=schema, drop_jobs=drop_jobs))

    def reverse(self) -> MigrateJobqueueOp:
        """The way back; never one that drops jobs."""
        return MigrateJobqueueOp(self.to_version, self.from_version, schema=self.schema)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return ("migrate_jobqueue", self.from_version, self.to_version)


@Operations.implementation_for(MigrateJobqueueOp)
def _migrate(operations: Operations, operation: MigrateJobqueueOp) -> None:
    migrate_jobqueue(
        operations,
        operation.from_version,
        operation.to_version,
        schema=operation.schema,
        drop_jobs=operation.drop_jobs,
    )
