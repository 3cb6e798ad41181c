"""Databases that serve one test after another: what a test leaves in their tables goes, any other trace costs the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.server import connect

_OURS = 16384  #: The first number that PostgreSQL gives to what its users make.
#: Whatever somebody can make or change in a database that lasts, but for rows: catalogue, which of its rows, and columns
#: that change by themselves.
_CATALOGUES = (
    (
        "pg_class",
        f"oid >= {_OURS}",
        "relfilenode relpages reltuples relallvisible relallfrozen relfrozenxid relminmxid",
    ),
    ("pg_attribute", f"attrelid >= {_OURS}", "attmissingval"),
    ("pg_attrdef", f"oid >= {_OURS}", ""),
    ("pg_index", f"indexrelid >= {_OURS}", ""),
    ("pg_constraint", f"oid >= {_OURS}", ""),
    ("pg_trigger", f"oid >= {_OURS}", ""),
    ("pg_rewrite", f"oid >= {_OURS}", ""),
    ("pg_policy", "true", ""),
    ("pg_proc", f"oid >= {_OURS}", ""),
    ("pg_type", f"oid >= {_OURS}", ""),
    ("pg_enum", f"oid >= {_OURS}", ""),
    ("pg_sequence", f"seqrelid >= {_OURS}", ""),
    ("pg_namespace", "nspname !~ '^pg_(toast_)?temp_'", ""),
    ("pg_description", f"objoid >= {_OURS}", ""),
    ("pg_extension", "true", ""),
    ("pg_event_trigger", "true", ""),
    ("pg_default_acl", "true", ""),
    ("pg_statistic_ext", "true", ""),
    ("pg_publication", "true", ""),
    ("pg_largeobject_metadata", "true", ""),
    ("pg_operator", f"oid >= {_OURS}", ""),
    ("pg_collation", f"oid >= {_OURS}", ""),
    ("pg_cast", f"oid >= {_OURS}", ""),
    (
        "pg_db_role_setting",
        "setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())",
        "",
    ),
    (
        "pg_database",
        "datname = current_database()",
        "oid datname datfrozenxid datminmxid datcollversion",
    ),
)
_TRACES = " UNION ALL ".join(
    f"SELECT '{name}' || (to_jsonb({name}) - '{{{','.join(volatile.split())}}}'::text[])::text AS trace "
    f"FROM {name} WHERE {which}"
    for name, which, volatile in _CATALOGUES
)
#: What the planner has learnt of the rows would survive them; and a prepared transaction holds its locks.
_MORE = f"""
    SELECT 'statistics' FROM pg_statistic WHERE starelid >= {_OURS}
    UNION ALL SELECT 'prepared' FROM pg_prepared_xacts WHERE database = current_database()
"""
_STATE = f"SELECT md5(string_agg(trace, ',' ORDER BY trace)) FROM ({_TRACES} UNION ALL {_MORE}) AS traces"
_TABLES = """
    SELECT oid::regclass::text FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'p')
"""


class Databases:
    """Copies of one template. Nobody sees which of them were used before."""

    def __init__(self, server: PostgresServer, template: str, new_name: Callable[[], str]) -> None:
        self._server = server
        self._template = template
        self._new_name = new_name
        self._free: list[str] = []
        with connect(server.url(template)) as connection:
            self._clean = _state(connection)
            tables = [sql.SQL(name) for (name,) in connection.execute(_TABLES)]
        self._empty = sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(sql.SQL(", ").join(tables))

    @contextmanager
    def one(self, check: Callable[[psycopg.Connection[Any]], None]) -> Iterator[str]:
        """The URL of a database as the template is, for the time of the block; `check` may refuse how it is left."""
        name, keep = self._free.pop() if self._free else self._copy(), False
        try:
            yield self._server.url(name)
            with connect(self._server.url(name)) as connection:
                check(connection)
                keep = self._emptied(connection)
        finally:
            if keep:
                self._free.append(name)
            else:
                self._server.drop_database(name)

    def close(self) -> None:
        """Drop them all."""
        while self._free:
            self._server.drop_database(self._free.pop())

    def _copy(self) -> str:
        name = self._new_name()
        self._server.create_database(name, self._template)
        return name

    def _emptied(self, connection: psycopg.Connection[Any]) -> bool:
        """Take the rows away, and the numbers they used up; False when there are other traces."""
        if _state(connection) != self._clean:
            return False
        connection.execute(self._empty)
        return True


def _state(connection: psycopg.Connection[Any]) -> Any:
    """Everything in the database but rows, as one short text."""
    return (connection.execute(_STATE.encode()).fetchone() or (None,))[0]
