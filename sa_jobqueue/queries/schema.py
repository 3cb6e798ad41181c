"""Which version of the queue's tables does this database have, and where does it tell of new jobs?"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, bindparam, cast, column, exists, func, select, table
from sqlalchemy.dialects.postgresql import OID

from sa_jobqueue.models import SCHEMA_COMMENT, jobs, schema_in_use
from sa_jobqueue.sql import word
from sa_jobqueue.trigger import CHANNEL_PREFIX

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Executable

_CATALOGUE = table("pg_class", column("oid", OID), column("relname", Text), schema="pg_catalog")
_VERSION = re.compile(SCHEMA_COMMENT.format(version=r"(\d+)"))


@cache
def comment() -> Executable:
    """The comment on the job table, NULL without table: to_regclass aborts nobody's transaction, a missing table would."""
    return select(func.obj_description(_job_table(), word("pg_class"), type_=Text))


@cache
def channel() -> Executable:
    """Where new jobs are notified, NULL without table."""
    return select(_channel_of(cast(_job_table(), OID)))


@cache
def channel_stands() -> Executable:
    """Whether the job table is still the one of this channel: one that was dropped and made anew has another.

    Parameter: `channel`. It needs no right and no search_path, so that any role may ask.
    """
    schema_in_use()
    known = cast(bindparam("channel", type_=Text), Text)
    found = exists().where(_CATALOGUE.c.relname == jobs.name, _channel_of(_CATALOGUE.c.oid) == known)
    return select(found)


def _channel_of(number: ColumnElement[Any]) -> ColumnElement[str]:
    return word(CHANNEL_PREFIX).concat(cast(number, Text))


def _job_table() -> ColumnElement[Any]:
    """The table as a `regclass`, NULL when it is not there."""
    schema_in_use()
    parts = [part for part in (jobs.schema, jobs.name) if part is not None]
    name = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    return func.to_regclass(cast(bindparam("table_name", name, type_=Text), Text))


def version(text: str | None) -> int | None:
    """The version that the comment names; None for no table, or a table that is not ours."""
    found = _VERSION.fullmatch(text or "")
    return int(found[1]) if found else None
