"""Reports of progress in one statement; what is odd about one of them costs no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.failures import storable
from sa_jobqueue.records import Landing, Renewed
from sa_jobqueue.statements.parts import MAX_TEXT_BYTES
from sa_jobqueue.statements.report import report
from sa_jobqueue.states import Verb
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.reconcile import misses
from sa_jobqueue.store.trouble import fault_of, passes_by_itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sa_jobqueue.records import LeaseKey, Progress
    from sa_jobqueue.store.connection import StoreConnection

    Report = tuple[LeaseKey, Progress]


def report_all(connection: StoreConnection, reports: Sequence[Report]) -> list[Renewed]:
    """Answers for all but those that the database refuses in either form; see `Store.report`."""

    def write(piece: Sequence[Report]) -> Iterable[tuple[int, bool]]:
        parameters = {
            "ids": [job_id for (job_id, _), _ in piece],
            "tokens": [token for (_, token), _ in piece],
            "fractions": [progress.fraction for _, progress in piece],
            "progress_texts": [
                None if progress.text is None else storable(progress.text, limit=MAX_TEXT_BYTES)
                for _, progress in piece
            ],
        }
        return map(tuple, connection.rows(report(), parameters))

    written = write_in_pieces(write, reports)
    landed = written.landed
    # A text may hold what this database's encoding can't; what came at a bad time alone is worth another try as it is.
    places = [place for place, error in written.refused.items() if not passes_by_itself(error)]
    reduced = write_in_pieces(
        write, [_without_text(reports[place], written.refused[place]) for place in places]
    )
    landed.update((places[at], asked) for at, asked in reduced.landed.items())
    dropped = {places[at] for at in reduced.refused}
    missed = [key for place, (key, _) in enumerate(reports) if place not in landed and place not in dropped]
    missing = misses(connection, missed, verb=Verb.RENEW) if missed else {}
    return [
        Renewed(*key, Landing.LANDED, landed[place])
        if place in landed
        else Renewed(*key, missing[key].landing)
        for place, (key, _) in enumerate(reports)
        if place not in dropped
    ]


def _without_text(report: Report, error: Exception) -> Report:
    key, progress = report
    return key, progress._replace(text=f"the text could not be stored ({fault_of(error)})")
