"""Settlements in batches: one statement per verb, and one bad row that never holds back its neighbours."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.statements.settle import SETTLING
from sa_jobqueue.states import Verb
from sa_jobqueue.store.pieces import write_in_pieces
from sa_jobqueue.store.reconcile import STATUSES, misses
from sa_jobqueue.store.trouble import fault_of, passes_by_itself

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sa_jobqueue.records import LeaseKey, Settlement
    from sa_jobqueue.store.connection import StoreConnection

_LONGEST_REDUCED_DELAY = timedelta(days=1)


def settle_all(
    connection: StoreConnection, settlements: Sequence[Settlement], *, again: bool = False
) -> list[Settled]:
    """Answers in the order given; grouped by verb, in the order in which the verbs appear."""
    verbs = {settlement.verb for settlement in settlements}
    if len(verbs) == 1:
        return _settle(connection, next(iter(verbs)), settlements, again=again)
    answers: dict[int, Settled] = {}
    for verb in dict.fromkeys(settlement.verb for settlement in settlements):
        places = [place for place, settlement in enumerate(settlements) if settlement.verb is verb]
        settled = _settle(connection, verb, [settlements[place] for place in places], again=again)
        answers.update(zip(places, settled, strict=True))
    return [answers[place] for place in range(len(settlements))]


def _settle(
    connection: StoreConnection, verb: Verb, batch: Sequence[Settlement], *, again: bool
) -> list[Settled]:
    if verb not in SETTLING:
        raise ValueError(
            f"settle: {verb} is no way to let a running job go, use one of {', '.join(SETTLING)}"
        )

    def write(piece: Sequence[Settlement]) -> Iterable[tuple[int, str]]:
        return _write(connection, verb, piece)

    written = write_in_pieces(write, batch)
    landed = written.landed
    if len(landed) == len(batch):
        return [
            Settled(settlement.id, settlement.token, Landing.LANDED, STATUSES[landed[place]])
            for place, settlement in enumerate(batch)
        ]
    faults = {place: fault_of(error) for place, error in written.refused.items()}
    # What only came at a bad time is sent again as it is, details and all.
    places = [place for place, error in written.refused.items() if not passes_by_itself(error)]
    reduced = write_in_pieces(write, [_reduced(batch[place], faults[place]) for place in places])
    landed.update((places[at], status) for at, status in reduced.landed.items())
    faults.update((places[at], fault_of(error)) for at, error in reduced.refused.items())
    # Read apart from the writes: were this refused with a piece, what the piece has written would be sent again.
    missed = [one for place, one in enumerate(batch) if place not in landed]
    missing = _misses(connection, missed, verb, again=again) if missed else {}
    return [
        Settled(one.id, one.token, Landing.LANDED, STATUSES[landed[place]], faults.get(place))
        if place in landed
        # Refused in either form, by somebody's trigger for example: still ours, and tried again and again.
        else missing[one.id, one.token]._replace(fault=faults.get(place))
        for place, one in enumerate(batch)
    ]


def _misses(
    connection: StoreConnection, missed: Sequence[Settlement], verb: Verb, *, again: bool
) -> dict[LeaseKey, Settled]:
    xids = {(one.id, one.token): one.xid for one in missed if again and one.xid is not None}
    return misses(connection, [(one.id, one.token) for one in missed], verb=verb, again=again, xids=xids)


def _write(connection: StoreConnection, verb: Verb, batch: Sequence[Settlement]) -> Iterable[tuple[int, str]]:
    """One statement; the position from 1 and the new status of each row that it reached."""
    statement, fields = SETTLING[verb]
    parameters: dict[str, Any] = {
        "ids": [settlement.id for settlement in batch],
        "tokens": [settlement.token for settlement in batch],
    }
    for parameter, field in fields:
        values = [getattr(settlement, field) for settlement in batch]
        # unnest pads the shorter of its arrays with NULL: a column of nothing need not be sent.
        parameters[parameter] = values if any(value is not None for value in values) else []
    return map(tuple, connection.rows(statement(), parameters))


def _reduced(settlement: Settlement, fault: str) -> Settlement:
    """The same outcome without what the caller's text or duration may have broken, so that the job comes to rest."""
    note = f"the details of this outcome could not be stored ({fault})"
    return settlement._replace(
        delay=None if settlement.delay is None else min(settlement.delay, _LONGEST_REDUCED_DELAY),
        error=None if settlement.error is None else note,
        reason=None if settlement.reason is None else note,
        result=None,
    )
