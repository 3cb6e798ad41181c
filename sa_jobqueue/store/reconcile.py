"""Why did a fenced write leave a row out? One read without a lock, and the words for what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sa_jobqueue.queries import held
from sa_jobqueue.records import Landing, Settled
from sa_jobqueue.states import TRANSITIONS, JobStatus, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sa_jobqueue.store.callers_connection import StoreConnection

    Key = tuple[int, UUID]

#: The status column's words as members, cheaper than the enum's own look-up.
STATUSES: Mapping[str, JobStatus] = {str(status): status for status in JobStatus}


class _Owner(NamedTuple):
    """What the row says about its owner, the last and the present one."""

    status: str
    token: UUID | None
    settled_token: UUID | None
    past: bool | None


def misses(
    connection: StoreConnection, missing: Sequence[Key], *, verb: Verb, again: bool = False
) -> dict[Key, Settled]:
    """Classify ids and tokens that a write with this verb did not reach.

    Still ours: expired when the write is a completion and the lease is past, otherwise busy (somebody else has the row
    locked, or had a moment ago). Not ours any more: gone without a row, otherwise lost; but when the answer to an
    earlier try was lost (`again`), a row settled by our token has landed after all.

    Some busy rows are nobody's fault: a claim that began before the claim of this job was committed locks the new row
    while it finds that it is not ready any more (four in a thousand, with three runners emptying one queue); they are
    free again when that claim has ended.
    """
    rows = connection.rows(held.owners(), {"ids": [job_id for job_id, _ in missing]})
    owners = {row[0]: _Owner(*row[1:]) for row in rows}
    return {key: _judge(key, owners.get(key[0]), verb, again=again) for key in missing}


def _judge(key: Key, owner: _Owner | None, verb: Verb, *, again: bool) -> Settled:
    token = key[1]
    if owner is None:
        return Settled(*key, Landing.GONE)
    if owner.token == token:
        return Settled(*key, Landing.EXPIRED if verb is Verb.COMPLETE and owner.past else Landing.BUSY)
    # done says that a completion landed, anything else that another verb did; a token tries one or the other.
    if again and owner.settled_token == token and (owner.status == JobStatus.DONE) == (verb is Verb.COMPLETE):
        return Settled(*key, Landing.LANDED, _reached(verb, STATUSES[owner.status]))
    return Settled(*key, Landing.LOST)


def _reached(verb: Verb, status: JobStatus) -> JobStatus:
    """The status that the write gave: that of the row, unless somebody has claimed, redriven or cancelled it since."""
    targets = TRANSITIONS[verb].targets
    return status if status in targets else targets[0]
