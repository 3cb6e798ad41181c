"""Due jobs of kinds that nobody here handles: how many of each stand at the head of their queues."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Text, all_, column, func, select, true

from sa_jobqueue.models import schema_in_use
from sa_jobqueue.queries.heads import head
from sa_jobqueue.sql import array

if TYPE_CHECKING:
    from sqlalchemy import Executable


@cache
def unknown_kinds() -> Executable:
    """Kind and count among the first `amount` due jobs of each of `queues`, of kinds that are none of `kinds`.

    What nobody takes stays at the head, so that a bounded look finds it.
    """
    schema_in_use()
    served = func.unnest(array("queues", Text)).table_valued(column("queue", Text)).render_derived("served")
    first = head(served)
    return (
        select(first.c.kind, func.count())
        .select_from(served.join(first, true()))
        .where(first.c.kind != all_(array("kinds", Text)))
        .group_by(first.c.kind)
        .order_by(first.c.kind)
    )
