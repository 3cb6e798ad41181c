"""INSERTs of jobs that go past `enqueue()`: the bulk methods of a Session, and Core statements.

No event of the ORM sees them. A Python-side default of a column that nobody writes does: SQLAlchemy calls it with the
values of the row before anything is sent. The library's own INSERT leaves such defaults out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import EnqueueError

if TYPE_CHECKING:
    from sqlalchemy.engine.default import DefaultExecutionContext

_KEYS = frozenset(("idempotency_key", "unique_key"))


def refuse_unsafe(context: DefaultExecutionContext, mapper: Any) -> None:
    """Raise EnqueueError for rows that the bulk methods of a Session insert, and for a row with a key.

    An object from `enqueue()` would never learn its id, and a taken key would abort the transaction. Rows without a key,
    by `insert(Job)`, pass: that is as good as SQL by hand. So does a key that is an SQL expression or comes by a bound
    parameter of another name.
    """
    if context.current_column is not mapper.c.settled_token:
        return  # a further row of one VALUES list, whose parameters were all looked at with the first
    # The bulk methods compile into the mapper's cache, statements of others into the engine's, or one of their own.
    if context.execution_options.get("compiled_cache") is mapper._compiled_cache:  # noqa: SLF001  # nothing else tells
        raise EnqueueError(
            "bulk_save_objects() and bulk_insert_mappings() know neither the key nor the id of a job: use "
            "session.add_all([enqueue(...), ...]), or enqueue_many(session, [enqueue(...), ...])"
        )
    # In a VALUES list of several rows they are called idempotency_key_m0 and so on.
    for name, value in (context.current_parameters or {}).items():
        if value is not None and name.partition("_m")[0] in _KEYS:
            raise EnqueueError(
                "an INSERT of a job with an idempotency key would abort the transaction where the key is taken: use "
                "session.add(enqueue(..., idempotency_key=...)), or enqueue_many(connection, [enqueue(...), ...])"
            )
