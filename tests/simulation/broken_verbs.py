"""Rules of the verbs left out on purpose, one at a time: each is one that the statements have, and would be missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.states import Verb
from tests.simulation.database import CANCELLED, DONE, READY, RUNNING, Database
from tests.simulation.mutants import Mutant
from tests.simulation.profiles import (
    BLOCKS,
    CALM,
    DOUBTS,
    EVERYTHING,
    FORGETTING,
    LOST_ANSWERS,
    PEOPLE,
    TAKEOVERS,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tests.simulation.database import Row
    from tests.simulation.ledger import Key

_CANCEL, _FENCE, _LET_GO, _MISSED, _PRUNE, _REDRIVE = (
    Database.cancel,
    Database.fence,
    Database._let_go,
    Database.missed,
    Database.prune,
    Database.redrive,
)


def _stamped_by_the_rescue(database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any) -> None:
    held = row.token
    _LET_GO(database, row, verb, token, **more)
    if verb is Verb.RESCUE:
        row.settled_token = held


def _redriven_without_a_budget(database: Database, job_id: int) -> None:
    row = database.rows.get(job_id)
    returned = None if row is None else row.returned
    _REDRIVE(database, job_id)
    if row is not None and returned is not None:
        row.returned = returned


def _redriven_with_its_request(database: Database, job_id: int) -> None:
    row = database.rows.get(job_id)
    asked = row is not None and row.cancel_requested
    _REDRIVE(database, job_id)
    if row is not None:
        row.cancel_requested = asked


def _discarded_in_spite_of_a_request(
    database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any
) -> None:
    if verb is Verb.DISCARD:
        row.cancel_requested = False
    _LET_GO(database, row, verb, token, **more)


def _retried_for_ever(database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any) -> None:
    _LET_GO(database, row, verb, token, **more | {"dead": verb is Verb.DISCARD})


def _cancelled_in_two_statements(database: Database, job_id: int) -> bool:
    row = database.rows.get(job_id)
    if row is None or row.status is READY:
        return _CANCEL(database, job_id)
    database._world.sleep(0.3)
    if row.status is not RUNNING:
        return False
    return _CANCEL(database, job_id)


def _gone_is_lost(database: Database, key: Key, verb: Verb, **more: Any) -> Settled:
    answer = _MISSED(database, key, verb, **more)
    return answer._replace(landing=Landing.LOST) if answer.landing is Landing.GONE else answer


def _ours_whatever_it_was(database: Database, key: Key, verb: Verb, *, again: bool, **more: Any) -> Settled:
    """The row was settled by our token: so what we have sent has landed, they say."""
    row = database.rows.get(key[0])
    if again and row is not None and row.settled_token == key[1]:
        return Settled(*key, Landing.LANDED, row.status)
    return _MISSED(database, key, verb, again=again, **more)


def _overwritten_is_landed(database: Database, key: Key, verb: Verb, *, again: bool, **more: Any) -> Settled:
    """Somebody has settled the row since: they could only after we had, they say."""
    answer = _MISSED(database, key, verb, again=again, **more)
    if again and answer.landing is Landing.LOST:
        return Settled(*key, Landing.LANDED, READY)
    return answer


def _released_for_free(database: Database, token: UUID) -> None:
    for row in database.rows.values():
        if row.status is RUNNING and row.token == token and not database._locked(row):
            row.returned += 1
            database._let_go(row, Verb.RELEASE, token)


def _released_at_a_price(database: Database, token: UUID) -> None:
    for row in database.rows.values():
        if row.status is RUNNING and row.token == token and not database._locked(row):
            database._let_go(row, Verb.RELEASE, token, dead=row.exhausted)


def _completed_past_the_lease(database: Database, batch: Any, *, own_lock: bool = False) -> Any:
    """Without a look at the lease."""
    landed = {}
    for one in batch:
        row = database.rows.get(one.id)
        if row is not None and row.token == one.token and (own_lock or not database._locked(row)):
            database._settle(row, one)
            landed[one.id, one.token] = row.status
    return landed


def _resurrected(database: Database, job_id: int) -> None:
    """Done is left as well."""
    row = database.rows.get(job_id)
    if row is not None and row.status is DONE:
        row.status, row.returned, row.run_at = READY, row.attempts, database._world.now
    else:
        _REDRIVE(database, job_id)


def _pruned_unfinished(database: Database, status: Any, _age: float, limit: int, after: Any) -> Any:
    return _PRUNE(database, status, -1.0, limit, after)


def _rescued_without_a_look_at_requests(
    database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any
) -> None:
    if verb is Verb.RESCUE and row.cancel_requested:
        row.cancel_requested = False
    _LET_GO(database, row, verb, token, **more)


def _exhausted_is_cancelled(
    database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any
) -> None:
    if verb is Verb.RESCUE:
        row.cancel_requested |= more.get("dead", False)
    _LET_GO(database, row, verb, token, **more)


def _snoozed_and_kept(database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any) -> None:
    held = row.token
    _LET_GO(database, row, verb, token, **more)
    if verb is Verb.SNOOZE and row.status is READY:
        row.status, row.token = RUNNING, held


def _rescued_for_free(database: Database, row: Row, verb: Verb, token: UUID | None, **more: Any) -> None:
    row.returned += verb is Verb.RESCUE and not more.get("dead", False)
    _LET_GO(database, row, verb, token, **more)


def _cancelled_as_done(database: Database, job_id: int) -> bool:
    cancelled, row = _CANCEL(database, job_id), database.rows.get(job_id)
    if row is not None and row.status is CANCELLED:
        row.status = DONE
    return cancelled


def _written_at_the_fence(database: Database, key: Key, *more: Any) -> Any:
    """The handler's writes are there at once, whatever becomes of its transaction."""
    transaction = _FENCE(database, key, *more)
    if transaction is not None:
        database._checks.has_effects(key)
    return transaction


#: What is left out of the table's verbs.
VERBS: dict[str, Mutant] = {
    "a rescue stamps the token that it takes": Mutant(
        TAKEOVERS, "FALSE-", patches=[(Database, "_let_go", _stamped_by_the_rescue)]
    ),
    "a rescue overlooks a request to cancel": Mutant(
        EVERYTHING, "CANCEL-LOST", patches=[(Database, "_let_go", _rescued_without_a_look_at_requests)]
    ),
    "a rescue cancels what is exhausted": Mutant(
        EVERYTHING, "STALE-CANCEL", patches=[(Database, "_let_go", _exhausted_is_cancelled)]
    ),
    "a rescue gives the attempt back": Mutant(
        TAKEOVERS, "FREE-RUN", patches=[(Database, "_let_go", _rescued_for_free)]
    ),
    "a snooze keeps the lease": Mutant(
        CALM, "TWO-OUTCOMES", patches=[(Database, "_let_go", _snoozed_and_kept)]
    ),
    "a snooze that was told keeps the lease": Mutant(
        CALM, "LATE-LAND", patches=[(Database, "_let_go", _snoozed_and_kept)]
    ),
    "a cancelled job is done": Mutant(
        PEOPLE, "DONE-UNLANDED", patches=[(Database, "cancel", _cancelled_as_done)]
    ),
    "a handler's writes do not wait for its COMMIT": Mutant(
        BLOCKS, "EFFECTS", patches=[(Database, "fence", _written_at_the_fence)]
    ),
    "a redrive gives no new budget": Mutant(
        PEOPLE, "BUDGET", patches=[(Database, "redrive", _redriven_without_a_budget)]
    ),
    "a redrive keeps the request to cancel": Mutant(
        PEOPLE, "STALE-CANCEL", patches=[(Database, "redrive", _redriven_with_its_request)]
    ),
    "a redrive leads out of done": Mutant(
        PEOPLE, "TWO-COMPLETIONS", patches=[(Database, "redrive", _resurrected)]
    ),
    "a discard overlooks a request to cancel": Mutant(
        PEOPLE, "CANCEL-LOST", patches=[(Database, "_let_go", _discarded_in_spite_of_a_request)]
    ),
    "a retry never exhausts": Mutant(
        EVERYTHING, "BUDGET", patches=[(Database, "_let_go", _retried_for_ever)]
    ),
    "a cancellation takes two statements": Mutant(
        PEOPLE, "CANCEL-LOST", patches=[(Database, "cancel", _cancelled_in_two_statements)]
    ),
    "a row that is gone counts as lost": Mutant(
        FORGETTING, "COMPLETED-REPORTED-LOST", patches=[(Database, "missed", _gone_is_lost)]
    ),
    "a row of our token is settled as we meant it": Mutant(
        DOUBTS, "COMPLETED-REPORTED-", patches=[(Database, "missed", _ours_whatever_it_was)]
    ),
    "a row that was settled since is settled as we meant it": Mutant(
        EVERYTHING, "FALSE-", patches=[(Database, "missed", _overwritten_is_landed)]
    ),
    "a lost claim is given back for ever": Mutant(
        LOST_ANSWERS, "NEVER-ENDS", patches=[(Database, "release_claim", _released_for_free)]
    ),
    "a lost claim is charged": Mutant(
        LOST_ANSWERS, "MISCOUNTED", patches=[(Database, "release_claim", _released_at_a_price)]
    ),
    "a completion does not look at the lease": Mutant(
        EVERYTHING, "COMPLETED-LATE", patches=[(Database, "settle", _completed_past_the_lease)]
    ),
    "the fence reads the time of its transaction's start": Mutant(
        BLOCKS,
        "COMPLETED-LATE",
        patches=[(Database, "_in_time", lambda _database, row, began_at: row.lease_until > began_at)],
    ),
    "a silent transaction is never ended": Mutant(
        DOUBTS, "NEVER-ENDS", patches=[(Database, "_end_when_silent", lambda *_: None)]
    ),
    "a prune takes what is young": Mutant(
        FORGETTING, "PRUNED-EARLY", patches=[(Database, "prune", _pruned_unfinished)]
    ),
}
