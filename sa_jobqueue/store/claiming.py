"""Claims and their release: one statement as a rule, and a way around a row that the database lets nobody change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sa_jobqueue.queries.held import of_token
from sa_jobqueue.statements.claim import candidates, claim, claim_listed
from sa_jobqueue.statements.settle import release_claim, release_listed
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.trouble import because_of_a_row, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from sa_jobqueue.store.callers_connection import StoreConnection

#: How many rows that can't be claimed may stand at the head of a queue before they hold up what is behind them.
SPARE = 100


def claim_rows(
    connection: StoreConnection, quotas: Mapping[str, int], kinds: Sequence[str], terms: Mapping[str, Any]
) -> Sequence[Any]:
    """The rows of what was taken from each queue, at most its quota; `terms` are token, lease and runner.

    An error that leaves it open what was taken passes through. One that the server answered does so only when nothing
    was taken: then the caller hears why nothing can be.
    """
    asked = {"queues": list(quotas), "kinds": list(kinds)}
    try:
        return connection.rows(claim(), {**asked, "quotas": list(quotas.values()), **terms})
    except Exception as error:
        if not because_of_a_row(error):
            raise
        wider = {**asked, "quotas": [quota + SPARE for quota in quotas.values()]}
        if taken := _claim_around(connection, quotas, connection.rows(candidates(), wider), terms):
            return taken
        raise


def _claim_around(
    connection: StoreConnection, quotas: Mapping[str, int], due: Sequence[Any], terms: Mapping[str, Any]
) -> list[Any]:
    """Claim by id, as far as each queue's quota goes, whatever does not fail."""
    taken: list[Any] = []

    def write(ids: Sequence[int]) -> Iterable[tuple[int, None]]:
        rows = connection.rows(claim_listed(), {"ids": ids, **terms})
        taken.extend(rows)
        return ((ids.index(row.id) + 1, None) for row in rows)

    left: dict[str, list[int]] = {queue: [] for queue in quotas}
    for queue, job_id in due:
        left[queue].append(job_id)
    while True:
        got = Counter(row.queue for row in taken)
        batch: list[int] = []
        for queue, quota in quotas.items():
            free = quota - got[queue]
            batch += left[queue][:free]
            left[queue] = left[queue][free:]
        if not batch:
            return taken
        try:
            write_in_pieces(write, batch)
        except Exception as error:
            # What was taken under this token must be answered, or nobody works on it until its lease is past.
            if taken and refused(error):
                return taken
            raise


def release_rows(connection: StoreConnection, token: UUID) -> int:
    """Give back what carries this token; a row whose release the database refuses is left to its lease."""
    try:
        return len(connection.rows(release_claim(), {"token": token}))
    except Exception as error:
        if not because_of_a_row(error):
            raise

    def write(ids: Sequence[int]) -> Iterable[tuple[int, None]]:
        rows = connection.rows(release_listed(), {"ids": ids, "token": token})
        return ((ids.index(row.id) + 1, None) for row in rows)

    ids = [row.id for row in connection.rows(of_token(), {"token": token})]
    return len(write_in_pieces(write, ids).landed)
