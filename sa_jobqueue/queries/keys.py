"""Which rows hold these unique keys, or have these ids."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, any_, func, select

from sa_jobqueue.models import SMALL_COLUMNS, jobs, schema_in_use
from sa_jobqueue.sql import array

if TYPE_CHECKING:
    from sqlalchemy import Select


@cache
def holders_of_keys() -> Select[Any]:
    """The rows that hold the unique keys in `:keys`, in any order, without their large columns."""
    schema_in_use()
    return select(*SMALL_COLUMNS).where(jobs.c.unique_key == any_(array("keys", Text)))


@cache
def ids_that_are_there() -> Select[Any]:
    """Those of `:ids` that a row has."""
    schema_in_use()
    return select(jobs.c.id).where(jobs.c.id == any_(array("ids", BigInteger)))


@cache
def transaction_time() -> Select[Any]:
    """now(): the start of the transaction, the time from which its jobs' delays count."""
    return select(func.now())
