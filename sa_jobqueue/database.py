"""Database URLs: the forms that people have at hand become the one that is used here, and passwords stay hidden.

Nothing connects here.
"""

from __future__ import annotations

import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from sa_jobqueue.errors import ConfigurationError

_DRIVER = "postgresql+psycopg"
_EXAMPLE = "write it as postgresql://user:password@host:5432/database"

#: What other drivers read from the query of a URL and libpq, which psycopg asks, would refuse.
_FOREIGN_OPTIONS = (
    "async_fallback",
    "command_timeout",
    "max_cacheable_statement_size",
    "max_cached_statement_lifetime",
    "prepared_statement_cache_size",
    "prepared_statement_name_func",
    "statement_cache_size",
)

#: The placeholder of our own examples is no password: hidden it would read as something to type.
_URL_USER = re.compile(r"://[^\s/:@]*:(?!password@host[:/][^\s@]*$)")
_WORD = re.compile(r"\S+")
_NAMED_PASSWORD = re.compile(r"(?i)\b(\w*password\s*=\s*)(?:'[^']*'|\"[^\"]*\"|[^\s&'\",;)]+)")


def normalise_url(url: str | URL) -> URL:
    """The URL with the driver psycopg 3, from `postgres://`, `postgresql://` or the URL of another driver.

    Raises ConfigurationError, which never holds the password, for other databases and for what is no URL.
    """
    parsed = _parse(url) if isinstance(url, str) else url
    backend = parsed.get_backend_name()
    if backend not in ("postgres", "postgresql"):
        raise ConfigurationError(
            f"the queue needs PostgreSQL, the database URL names {backend!r}: {_EXAMPLE}"
        )
    if parsed.host and "@" in parsed.host:
        raise ConfigurationError(
            "the database URL has more than one @: write each @ of user and password as %40, each / as %2F, each : as %3A"
        )
    query = {name: value for name, value in parsed.query.items() if name not in _FOREIGN_OPTIONS}
    if isinstance(password := query.get("password"), str):
        # It has the last word for libpq as well, and where URLs have it SQLAlchemy hides it from reprs.
        del query["password"]
        parsed = parsed.set(password=password)
    if "ssl" in query:  # asyncpg's name; the values are those of libpq
        query.setdefault("sslmode", query.pop("ssl"))
    return parsed.set(drivername=_DRIVER, query=query)


def shown_url(url: URL) -> str:
    """The URL for messages: without password and without the query, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def hide_passwords(text: str, *, by: str = "***") -> str:
    """The text with the passwords of URLs and of `password=...` settings replaced by ***, or by what is given.

    Hides rather too much than too little: in a URL all up to the last @ before a space.
    """
    if "://" in text and "@" in text:
        text = _WORD.sub(lambda word: _without_password(word[0], by), text)
    if "=" in text:  # which nearly no line of a log has
        text = _NAMED_PASSWORD.sub(lambda found: found[1] + by, text)
    return text


def _without_password(word: str, by: str) -> str:
    # Looked for by hand: an expression for all of it would take the square of the time for a long text.
    end = word.rfind("@")
    for user in _URL_USER.finditer(word):
        if user.end() < end:
            return word[: user.end()] + by + word[end:]
    return word


def _parse(text: str) -> URL:
    if not text.strip():
        raise ConfigurationError(f"the database URL is empty: {_EXAMPLE}")
    try:
        return make_url(text.strip())
    except (ArgumentError, ValueError):
        # The causes repeat the text, password and all.
        raise ConfigurationError(f"the database URL can't be read: {_EXAMPLE}") from None
