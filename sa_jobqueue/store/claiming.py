"""Claims and their release: one statement as a rule, and a way around a row that the database lets nobody change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sa_jobqueue.queries.held import of_token
from sa_jobqueue.records import PRIORITIES
from sa_jobqueue.statements.claim import candidates, claim, claim_listed
from sa_jobqueue.statements.settle import release_claim, release_listed
from sa_jobqueue.states import Verb
from sa_jobqueue.store.pieces import PROBES, write_in_pieces
from sa_jobqueue.store.trouble import because_of_a_row, passes_by_itself, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from sa_jobqueue.records import Marks
    from sa_jobqueue.store.connection import StoreConnection
    from sa_jobqueue.store.refusals import Refusals

#: How many rows that can't be claimed may stand at the head of a queue before they hold up what is behind them.
SPARE = 100


def claim_rows(
    connection: StoreConnection,
    quotas: Mapping[str, int],
    kinds: Sequence[str],
    terms: Mapping[str, Any],
    refusals: Refusals,
    behind: Mapping[str, Marks],
) -> tuple[Sequence[Any], bool]:
    """The rows of what was taken from each queue, at most its quota and behind its marks; `through` as of a ClaimAnswer.

    `terms` are token, lease and runner.

    An error that leaves it open what was taken passes through. One that the server answered does so only when nothing
    was taken and no row is to blame for it; rows that are to blame are reported, and left alone for a while.
    """
    asked = {"queues": list(quotas), "kinds": list(kinds), **_marks(quotas, behind)}
    try:
        return connection.rows(claim(), {**asked, "quotas": list(quotas.values()), **terms}), True
    except Exception as error:
        if not because_of_a_row(error):
            raise
        wider = {**asked, "quotas": [quota + SPARE for quota in quotas.values()]}
        due = connection.rows(candidates(), wider)
        fresh = [row for row in due if not refusals.paused(row[1])]
        errors: dict[int, Exception] = {}
        taken = _claim_around(connection, quotas, fresh, terms, errors)
        lasting = {job_id: fault for job_id, fault in errors.items() if not passes_by_itself(fault)}
        refusals.tell(Verb.CLAIM, lasting)
        refusals.pause(lasting)
        if taken:
            return taken, False
        # Nothing at all: either it came at a bad time, or so many rows can't each be to blame.
        if (
            passes_by_itself(error)
            or len(lasting) < len(errors)
            or len(due) - len(fresh) + len(lasting) >= PROBES
        ):
            raise
        # No row can be to blame for what this says: a right or a column is missing.
        connection.rows(claim_listed(), {"ids": [], **terms})
        return (), False


def _marks(quotas: Mapping[str, int], behind: Mapping[str, Marks]) -> dict[str, Any]:
    """As parameters of the statement, which knows queues by their places alone; without a mark it needs none."""
    if not behind:
        return {}
    marks = [mark for queue in quotas for mark in behind.get(queue, (None,) * PRIORITIES)]
    return {
        "low_times": [mark and mark.run_at for mark in marks],
        "low_ids": [mark and mark.id for mark in marks],
    }


def _claim_around(
    connection: StoreConnection,
    quotas: Mapping[str, int],
    due: Sequence[Any],
    terms: Mapping[str, Any],
    errors: dict[int, Exception],
) -> list[Any]:
    """Claim by id, as far as each queue's quota goes, whatever does not fail; the others go into `errors`."""
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
            written = write_in_pieces(write, batch)
        except Exception as error:
            # What was taken under this token must be answered, or nobody works on it until its lease is past.
            if taken and refused(error):
                return taken
            raise
        errors.update((batch[place], error) for place, error in written.refused.items())


def release_rows(connection: StoreConnection, token: UUID, refusals: Refusals) -> int:
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
    written = write_in_pieces(write, ids)
    refusals.tell(Verb.RELEASE, {ids[place]: error for place, error in written.refused.items()})
    return len(written.landed)
