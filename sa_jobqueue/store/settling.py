"""Settlements in batches: one statement per verb, and one bad row that never holds back its neighbours."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DataError, DBAPIError

from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.statements.settle import SETTLING
from sa_jobqueue.states import Verb
from sa_jobqueue.store.reconcile import STATUSES, misses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.records import Settlement
    from sa_jobqueue.store.own_connection import OwnConnection

#: Classes of SQLSTATE that one row alone can cause: data, constraint, limit of the server, somebody's trigger.
_OF_ONE_ROW = frozenset({"22", "23", "54", "P0"})
_LONGEST_REDUCED_DELAY = timedelta(days=1)


def settle_all(
    connection: OwnConnection, settlements: Sequence[Settlement], *, again: bool = False
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
    connection: OwnConnection, verb: Verb, batch: Sequence[Settlement], *, again: bool
) -> list[Settled]:
    try:
        return _write(connection, verb, batch, again=again)
    except (DBAPIError, UnicodeError, OverflowError) as error:
        if not _of_one_row(error):
            raise
        if len(batch) == 1:
            return [_settle_reduced(connection, batch[0], error, again=again)]
    middle = len(batch) // 2
    halves = batch[:middle], batch[middle:]
    return [settled for half in halves for settled in _settle(connection, verb, half, again=again)]


def _of_one_row(error: Exception) -> bool:
    """Whether the batch without one of its rows may pass, as it would not without a connection."""
    if not isinstance(error, DBAPIError):
        return True  # the driver's answer to a lone surrogate or to a duration beyond its range
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate is None:
        return isinstance(error, DataError)  # refused by the driver, a NUL for example
    return sqlstate[:2] in _OF_ONE_ROW


def _write(
    connection: OwnConnection, verb: Verb, batch: Sequence[Settlement], *, again: bool
) -> list[Settled]:
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
        values = [getattr(settlement, field) for settlement in batch]
        # unnest pads the shorter of its arrays with NULL: a column of nothing need not be sent.
        parameters[parameter] = values if any(value is not None for value in values) else []
    landed = dict(map(tuple, connection.rows(statement(), parameters)))
    if len(landed) == len(batch):
        return [
            Settled(settlement.id, settlement.token, Landing.LANDED, STATUSES[landed[position]])
            for position, settlement in enumerate(batch, 1)
        ]
    missed = [
        (settlement.id, settlement.token)
        for position, settlement in enumerate(batch, 1)
        if position not in landed
    ]
    missing = misses(connection, missed, verb=verb, again=again)
    return [
        Settled(settlement.id, settlement.token, Landing.LANDED, STATUSES[landed[position]])
        if position in landed
        else missing[settlement.id, settlement.token]
        for position, settlement in enumerate(batch, 1)
    ]


def _settle_reduced(
    connection: OwnConnection, settlement: Settlement, error: Exception, *, again: bool
) -> Settled:
    """The same outcome without what the caller's text or duration may have broken, so that the job comes to rest."""
    # The error's own text may quote the value that can't be stored, so only its type goes into the row.
    fault = type(error).__name__
    note = f"the details of this outcome could not be stored ({fault})"
    reduced = settlement._replace(
        delay=None if settlement.delay is None else min(settlement.delay, _LONGEST_REDUCED_DELAY),
        error=None if settlement.error is None else note,
        reason=None if settlement.reason is None else note,
        result=None,
    )
    try:
        (settled,) = _write(connection, settlement.verb, [reduced], again=again)
    except DBAPIError as second:
        if not _of_one_row(second):
            raise
        # A trigger or a constraint of somebody else's: still ours, to be tried again until the lease decides.
        return Settled(settlement.id, settlement.token, Landing.BUSY, fault=type(second).__name__)
    return settled._replace(fault=fault)
