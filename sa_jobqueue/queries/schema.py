"""Which version of the queue's tables does this database have?"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Text, bindparam, cast, func, select

from sa_jobqueue.models import SCHEMA_COMMENT, jobs, schema_in_use
from sa_jobqueue.sql import word

if TYPE_CHECKING:
    from sqlalchemy import Executable

_VERSION = re.compile(SCHEMA_COMMENT.format(version=r"(\d+)"))


@cache
def comment() -> Executable:
    """The comment on the job table, NULL without table: to_regclass aborts nobody's transaction, a missing table would."""
    schema_in_use()
    parts = [part for part in (jobs.schema, jobs.name) if part is not None]
    name = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    table = func.to_regclass(cast(bindparam("table_name", name, type_=Text), Text))
    return select(func.obj_description(table, word("pg_class"), type_=Text))


def version(text: str | None) -> int | None:
    """The version that the comment names; None for no table, or a table that is not ours."""
    found = _VERSION.fullmatch(text or "")
    return int(found[1]) if found else None
