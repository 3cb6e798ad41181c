"""Why did a fenced write leave a row out? One read without a lock, and the words for what it finds."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.queries import held, transaction
from sa_jobqueue.records import Landing, LeaseKey, Settled
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb
from sa_jobqueue.store.trouble import refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sa_jobqueue.store.connection import StoreConnection

#: The status column's words as members, cheaper than the enum's own look-up.
STATUSES: Mapping[str, JobStatus] = {str(status): status for status in JobStatus}
NO_XIDS: Mapping[LeaseKey, int] = MappingProxyType({})


class _Owner(NamedTuple):
    """What the row says about its owner, the last and the present one."""

    status: str
    token: UUID | None
    settled_token: UUID | None
    past: bool | None


def misses(
    connection: StoreConnection,
    missing: Sequence[LeaseKey],
    *,
    verb: Verb,
    again: bool = False,
    xids: Mapping[LeaseKey, int] = NO_XIDS,
) -> dict[LeaseKey, Settled]:
    """Classify ids and tokens that a write with this verb did not reach.

    Still ours: expired when the write is a completion and the lease is past, otherwise busy (somebody else has the row
    locked, or had a moment ago). Not ours any more: gone without a row, otherwise lost; but when something sent before
    under the same token is in doubt (`again`: the answer to an earlier try, or a completion in the handler's own
    transaction), a row settled by our token tells what has landed: done says the completion, anything else the other verb.
    For a row that is gone the transaction of such a completion tells, if it is among `xids`.

    Some busy rows are nobody's fault: a claim that began before the claim of this job was committed locks the new row
    while it finds that it is not ready any more (four in a thousand, with three runners emptying one queue); they are
    free again when that claim has ended.
    """
    rows = connection.rows(held.owners(), {"ids": [job_id for job_id, _ in missing]})
    owners = {row[0]: _Owner(*row[1:]) for row in rows}
    judged = {key: _judge(key, owners.get(key[0]), verb, again=again) for key in missing}
    for key, xid in xids.items():
        if key in judged and judged[key].landing is Landing.GONE:
            judged[key] = _judge_transaction(connection, key, xid)
    return judged


def _judge(key: LeaseKey, owner: _Owner | None, verb: Verb, *, again: bool) -> Settled:
    token = key[1]
    if owner is None:
        return Settled(*key, Landing.GONE)
    if owner.token == token:
        return Settled(*key, Landing.EXPIRED if verb is Verb.COMPLETE and owner.past else Landing.BUSY)
    if not again or owner.settled_token != token:
        return Settled(*key, Landing.LOST)
    # done says that a completion landed, anything else that another verb did: nothing leads out of done but a prune.
    if owner.status == JobStatus.DONE:
        return Settled(*key, Landing.LANDED, JobStatus.DONE, completed=verb is not Verb.COMPLETE)
    if verb is Verb.COMPLETE:
        return Settled(*key, Landing.LOST)
    return Settled(*key, Landing.LANDED, _reached(verb, STATUSES[owner.status]))


def _judge_transaction(connection: StoreConnection, key: LeaseKey, xid: int) -> Settled:
    """The row is gone: pruned after the completion in this transaction, or deleted instead of it.

    Told apart by the server on which it ran, for as long as that remembers. One that was promoted since without the end
    of the transaction does not know it, which leaves the job gone.
    """
    try:
        ((status,),) = connection.rows(transaction.status(), {"xid": str(xid)})
    except DBAPIError as error:
        if not refused(error):
            raise
        status = None
    if status == "committed":
        return Settled(*key, Landing.LANDED, JobStatus.DONE, completed=True)
    return Settled(*key, Landing.BUSY if status == "in progress" else Landing.GONE)


def _reached(verb: Verb, status: JobStatus) -> JobStatus:
    """The status that the write gave: that of the row, unless somebody has claimed, redriven or cancelled it since."""
    targets = TRANSITIONS[verb].targets
    return status if status in targets else targets[0]
