"""What a key may be asked for: the fields that it is made of, for how long it is taken, what a second job with it does.

One check for a handler's settings and for the arguments of `enqueue()`; how a key is made and stored is `entry`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from sa_jobqueue.names import passed
from sa_jobqueue.periods import Period
from sa_jobqueue.records import KeyScope, OnConflict

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_SCOPE: KeyScope = "row"
DEFAULT_ON_CONFLICT: OnConflict = "existing"
_SCOPES, _ON_CONFLICT = get_args(KeyScope), get_args(OnConflict)


def check_scope(value: Any, where: str = "") -> None:
    """ValueError, beginning with `where`, for what is no scope of a key."""
    if not isinstance(value, Period) and value not in _SCOPES:
        raise ValueError(
            f'{where}key_scope={_told(value)}: expected "row", "unfinished" or Period(timedelta(...))'
        )


def check_on_conflict(value: Any, where: str = "") -> None:
    """ValueError, beginning with `where`, for what can't become of a second job."""
    if value not in _ON_CONFLICT:
        raise ValueError(
            f"{where}on_conflict={_told(value)}: expected one of {', '.join(map(repr, _ON_CONFLICT))}"
        )


def field_names(unique_by: Iterable[str], where: str = "") -> tuple[str, ...]:
    """The fields that make a key; TypeError or ValueError, beginning with `where`, for none and for what is no name."""
    if isinstance(unique_by, str):
        raise TypeError(f"{where}unique_by={unique_by!r}: expected several names: write [{unique_by!r}]")
    try:
        names = tuple(unique_by)
    except TypeError:
        raise TypeError(f"{where}unique_by={passed(unique_by)}: expected names of fields") from None
    if not names:
        raise ValueError(
            f"{where}unique_by is empty: every job of the kind would be the same; name the fields that differ"
        )
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{where}unique_by: expected names of fields, got {passed(name)}")
    return names


def _told(value: object) -> str:
    """A word as it is, for it may be misspelt."""
    return repr(value) if isinstance(value, str) else passed(value)
