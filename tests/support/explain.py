"""EXPLAIN (ANALYZE, BUFFERS) of a Core statement, as a rule under a generic plan, which a prepared one gets some time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.sql.expression import ClauseElement

from sa_jobqueue.testing.server import connect


@dataclass(frozen=True, slots=True)
class Plan:
    """What EXPLAIN (ANALYZE, BUFFERS) said about one run."""

    root: dict[str, Any]

    @property
    def nodes(self) -> list[dict[str, Any]]:
        found, todo = [], [self.root]
        while todo:
            node = todo.pop()
            found.append(node)
            todo += node.get("Plans", [])
        return found

    @property
    def buffers(self) -> int:
        """Shared buffers touched, by the whole statement."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def scanned(self) -> list[str]:
        """Tables that were read from one end to the other."""
        return [node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"]


def explain(url: str, statement: ClauseElement, parameters: dict[str, Any], *, generic: bool = True) -> Plan:
    """Run the statement once, in a transaction that is rolled back; not `generic`, planned for these parameters."""
    mode = b"generic" if generic else b"custom"
    # asyncpg's dialect writes $1, $2: that is what PREPARE takes.
    compiled = statement.compile(dialect=asyncpg.dialect())
    order: list[str] = compiled.positiontup  # type: ignore[attr-defined]
    values = [{**compiled.params, **parameters}[name] for name in order]
    marks = ", ".join(["%s"] * len(values))
    with connect(url) as connection, connection.transaction(force_rollback=True):
        connection.execute(b"SET LOCAL plan_cache_mode = force_%s_plan" % mode)
        connection.execute("SET LOCAL jit = off")
        connection.execute(f"PREPARE planned AS {compiled}".encode())
        cursor = psycopg.ClientCursor(connection)
        text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE planned"
        cursor.execute(f"{text}({marks})".encode() if values else text.encode(), values)
        row = cursor.fetchone()
        assert row is not None
        connection.execute("DEALLOCATE planned")
    return Plan(row[0][0]["Plan"])
