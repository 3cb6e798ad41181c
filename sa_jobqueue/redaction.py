"""What people are shown of payloads and results, without the secrets in it.

By the names of fields, and of texts the passwords of URLs: a secret under another name is shown. Hides rather too much
than too little. Pure; nothing here decides where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.database import hide_passwords
from sa_jobqueue.records import MAX_PAYLOAD_DEPTH

if TYPE_CHECKING:
    from collections.abc import Collection

#: Parts of the names of fields that hold secrets.
SECRET_NAMES = (
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
)
REDACTED = "[redacted]"
_SEPARATORS = str.maketrans("", "", "_-")


def redacted(value: Any, names: Collection[str] = SECRET_NAMES) -> Any:
    """A copy of a JSON value with "[redacted]" in the place of each field, at any depth, whose name contains one of these.

    Whatever stands there is gone as a whole. Names are compared without case, `_` and `-`: "apikey" is in "X-Api-Key" too.
    In texts the passwords of URLs, and of settings as `password=...`, are replaced likewise. What is nested deeper than a
    payload can be, and only SQL of others has stored, is hidden as a whole. All else comes back equal.
    More names are `redacted(value, [*SECRET_NAMES, "iban"])`. Raises what `check_secret_name` does.
    """
    if isinstance(names, str):
        raise TypeError(f"redacted(names={names!r}): expected several names: write [{names!r}]")
    words = [_plain(check_secret_name(name)) for name in names]

    def walk(value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return hide_passwords(value, by=REDACTED)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth == MAX_PAYLOAD_DEPTH:
            return REDACTED
        if isinstance(value, dict):
            return {
                name: REDACTED if hides(name) else walk(member, depth + 1) for name, member in value.items()
            }
        members = [walk(member, depth + 1) for member in value]
        return tuple(members) if isinstance(value, tuple) else members

    def hides(name: object) -> bool:
        plain = _plain(str(name))
        return any(word in plain for word in words)

    return walk(value)


def check_secret_name(name: str) -> str:
    """The name itself; TypeError when it is no text, ValueError when nothing is left of it without `_` and `-`."""
    if not isinstance(name, str):
        raise TypeError(f"redacted(names=...): expected texts, got {type(name).__qualname__}")
    if not _plain(name).strip():
        raise ValueError(
            f"redacted(names=...): {name!r} would hide every field: name a part of the fields' names"
        )
    return name


def _plain(name: str) -> str:
    return name.translate(_SEPARATORS).casefold()
