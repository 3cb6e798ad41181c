"""What makes a job the same as another: the key as it was given, or made of its payload, and how long it is taken.

A key that is made of a payload is the same in every process and every release: it is stored, and compared with what
others store later. A change of how it is made would let every waiting job run a second time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import EnqueueError
from sa_jobqueue.key_settings import (
    DEFAULT_ON_CONFLICT,
    DEFAULT_SCOPE,
    check_on_conflict,
    check_scope,
    field_names,
)
from sa_jobqueue.names import hint
from sa_jobqueue.payloads import Ref, check_key
from sa_jobqueue.periods import Period, bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_jobqueue.records import HandlerCall, KeyScope, NewJob, OnConflict


@dataclass(frozen=True, slots=True)
class Key:
    """What was asked for about the key of one job, checked: either `given`, or made of the fields `made_of`."""

    given: str | None
    made_of: tuple[str, ...]
    scope: KeyScope | Period
    on_conflict: OnConflict

    def put(self, new_job: NewJob, payload: Any) -> NewJob:
        """The job with its key. Raises TypeError or ValueError where the key can't be made of this payload."""
        key = self.given or self._made(new_job.kind, payload)
        if key is None:
            return new_job
        period, bucket, scope = None, None, self.scope
        if isinstance(scope, Period):
            length, at = scope.length, scope.at
            scope = "row"
            if at is None:
                period = length
            else:
                bucket = bucket_of(at, length)
        return new_job._replace(
            idempotency_key=key, key_scope=scope, on_conflict=self.on_conflict, period=period, bucket=bucket
        )

    def is_plain(self, new_job: NewJob) -> bool:
        """Whether the idempotency key of the job says all that was asked for."""
        plain = self.scope == DEFAULT_SCOPE and self.on_conflict == DEFAULT_ON_CONFLICT
        return plain and new_job.idempotency_key is not None

    def _made(self, kind: str, payload: Any) -> str | None:
        """The kind, and a hash of the fields: of their canonical JSON, names in order, no spaces.

        None while a field refers to a row that is not written yet.
        """
        if not isinstance(payload, dict):
            raise TypeError(
                f"unique_by: the payload of {kind!r} has no fields, for it is no object: pass idempotency_key"
            )
        for name in self.made_of:
            if name not in payload:
                raise ValueError(
                    f"unique_by: the payload of {kind!r} has no {name!r}{hint(name, payload)}: pass the argument, also "
                    "where it has a default, which may change"
                )
        fields = {name: payload[name] for name in self.made_of}
        if any(map(_has_reference, fields.values())):
            return None
        text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"


def read_key(
    idempotency_key: Any, unique_by: Any, key_scope: Any, on_conflict: Any, call: HandlerCall | None = None
) -> Key | None:
    """What the arguments ask for, None for a job without a key. Raises TypeError or ValueError, naming the argument.

    What is None among them is as the call's handler has it, if there is one; a key of either kind replaces its `unique_by`.
    """
    if idempotency_key is unique_by is key_scope is on_conflict is None and (
        call is None or call.unique_by is None
    ):
        return None  # as most jobs are
    scope = _first(key_scope, call and call.key_scope, DEFAULT_SCOPE)
    conflict = _first(on_conflict, call and call.on_conflict, DEFAULT_ON_CONFLICT)
    check_scope(scope)
    check_on_conflict(conflict)
    if idempotency_key is not None and unique_by is not None:
        raise ValueError("idempotency_key and unique_by exclude each other: pass the one that makes the key")
    if idempotency_key is None and unique_by is None:
        unique_by = call and call.unique_by
    if idempotency_key is None and unique_by is None:
        _refuse_without_key(key_scope, on_conflict)
        return None
    given = None if idempotency_key is None else check_key("idempotency_key", idempotency_key)
    return Key(given, () if unique_by is None else field_names(unique_by), scope, conflict)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _refuse_without_key(key_scope: Any, on_conflict: Any) -> None:
    if on_conflict not in (None, DEFAULT_ON_CONFLICT):
        about = f"on_conflict={on_conflict!r}"
    elif key_scope not in (None, DEFAULT_SCOPE):
        about = f"key_scope={key_scope!r}"
    else:
        return
    raise ValueError(f"{about} is about a key, and the job has none: pass idempotency_key or unique_by")


def refuse_own_key(own: str | None, new_jobs: Iterable[NewJob]) -> None:
    """Raise EnqueueError for one of these with the key of the one that this very transaction completes, and sets free by it.

    It would be told of a job that is done the moment that the caller commits, and nobody would do what is asked for.
    """
    # A period that the database's clock has yet to choose makes it another key.
    if own is not None and any(one.period is None and one.unique_key == own for one in new_jobs):
        raise EnqueueError(
            f"the idempotency key {own!r} belongs to the job that this transaction completes, and is free once that has "
            "committed: enqueue the next one after the block, or give it another key"
        )


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_reference, value.values()))
    if isinstance(value, list):
        return any(map(_has_reference, value))
    return isinstance(value, Ref)
