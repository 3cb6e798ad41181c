"""Settlements in batches: one statement per verb, and one bad row that never holds back its neighbours."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DataError, IntegrityError

from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.statements.settle import SETTLING
from sa_jobqueue.states import Verb
from sa_jobqueue.store.reconcile import STATUSES, misses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import Settlement
    from sa_jobqueue.store.own_connection import OwnConnection

#: What one row alone can cause: the database or the driver can't store a value. UnicodeError is the driver's answer to
#: a lone surrogate, OverflowError to a duration beyond its range.
_BAD_VALUE = (DataError, IntegrityError, UnicodeError, OverflowError)
_LONGEST_REDUCED_DELAY = timedelta(days=1)


def settle_all(connection: OwnConnection, settlements: Sequence[Settlement]) -> list[Settled]:
    """Answers in the order given; grouped by verb, in the order in which the verbs appear."""
    verbs = {settlement.verb for settlement in settlements}
    if len(verbs) == 1:
        return _settle(connection, next(iter(verbs)), settlements)
    answers: dict[int, Settled] = {}
    for verb in dict.fromkeys(settlement.verb for settlement in settlements):
        places = [place for place, settlement in enumerate(settlements) if settlement.verb is verb]
        settled = _settle(connection, verb, [settlements[place] for place in places])
        answers.update(zip(places, settled, strict=True))
    return [answers[place] for place in range(len(settlements))]


def _settle(connection: OwnConnection, verb: Verb, batch: Sequence[Settlement]) -> list[Settled]:
    try:
        return _write(connection, verb, batch)
    except _BAD_VALUE as error:
        if len(batch) == 1:
            return [_settle_reduced(connection, batch[0], error)]
    middle = len(batch) // 2
    return _settle(connection, verb, batch[:middle]) + _settle(connection, verb, batch[middle:])


def _write(connection: OwnConnection, verb: Verb, batch: Sequence[Settlement]) -> list[Settled]:
    if verb not in SETTLING:
        raise ValueError(
            f"settle: {verb} is no way to let a running job go, use one of {', '.join(SETTLING)}"
        )
    statement, fields = SETTLING[verb]
    parameters: dict[str, Any] = {
        "ids": [settlement.id for settlement in batch],
        "tokens": [settlement.token for settlement in batch],
    }
    for parameter, field in fields:
        parameters[parameter] = [getattr(settlement, field) for settlement in batch]
    landed = dict(map(tuple, connection.rows(statement(), parameters)))
    if len(landed) == len(batch):
        return [
            Settled(settlement.id, settlement.token, Landing.LANDED, STATUSES[landed[position]])
            for position, settlement in enumerate(batch, 1)
        ]
    missing = misses(
        connection,
        [
            (settlement.id, settlement.token)
            for position, settlement in enumerate(batch, 1)
            if position not in landed
        ],
        needs_lease=verb is Verb.COMPLETE,
    )
    return [
        Settled(settlement.id, settlement.token, Landing.LANDED, STATUSES[landed[position]])
        if position in landed
        else Settled(settlement.id, settlement.token, missing[settlement.id, settlement.token])
        for position, settlement in enumerate(batch, 1)
    ]


def _settle_reduced(connection: OwnConnection, settlement: Settlement, error: Exception) -> Settled:
    """The same outcome without what the caller's text or duration may have broken, so that the job comes to rest."""
    # The error's own text may quote the value that can't be stored, so only its type goes into the row.
    fault = type(error).__name__
    note = f"the details of this outcome could not be stored ({fault})"
    reduced = replace(
        settlement,
        delay=None if settlement.delay is None else min(settlement.delay, _LONGEST_REDUCED_DELAY),
        error=None if settlement.error is None else note,
        reason=None if settlement.reason is None else note,
        result=None,
    )
    try:
        (settled,) = _write(connection, settlement.verb, [reduced])
    except _BAD_VALUE as again:
        # A trigger or a constraint of somebody else's: still ours, to be tried again until the lease decides.
        return Settled(settlement.id, settlement.token, Landing.BUSY, fault=type(again).__name__)
    return replace(settled, fault=fault)
