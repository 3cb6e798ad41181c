"""What a database holds, as plain rows that can be compared: our tables in detail, everything else by name and definition."""

from __future__ import annotations

from typing import Any

from sa_jobqueue.testing.server import connect

_TABLE = {
    "columns": """
        SELECT attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
               pg_get_expr(adbin, adrelid)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """,
    "constraints": """
        SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = %(table)s::regclass ORDER BY conname
    """,
    "indexes": """
        SELECT indexrelid::regclass::text, replace(pg_get_indexdef(indexrelid), %(table)s, 'TABLE'), indisvalid
        FROM pg_index WHERE indrelid = %(table)s::regclass ORDER BY indexrelid::regclass::text
    """,
    "options": "SELECT reloptions, relpersistence FROM pg_class WHERE oid = %(table)s::regclass",
    "comment": "SELECT obj_description(%(table)s::regclass, 'pg_class')",
    "triggers": """
        SELECT tgname, replace(pg_get_triggerdef(oid), %(schema)s || '.', 'HERE.'), tgenabled
        FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND NOT tgisinternal ORDER BY 1
    """,
    "functions": """
        SELECT proname, replace(pg_get_functiondef(oid), %(schema)s || '.', 'HERE.'), proacl IS NULL, proacl::text
        FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace AND proname ~ '^jobqueue_' ORDER BY 1
    """,
}
_NOT_THE_SYSTEMS = "nspname !~ '^pg_' AND nspname <> 'information_schema'"
_EVERYTHING = {
    "relations": f"""
        SELECT nspname, relname, relkind, relpersistence, relowner::regrole::text, reloptions, relacl::text
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE {_NOT_THE_SYSTEMS} ORDER BY 1, 2, 3
    """,
    "columns": f"""
        SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE {_NOT_THE_SYSTEMS} AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2
    """,
    "types": f"""
        SELECT nspname, typname, typtype, array(SELECT enumlabel FROM pg_enum WHERE enumtypid = pg_type.oid ORDER BY 1)
        FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace WHERE {_NOT_THE_SYSTEMS} ORDER BY 1, 2
    """,
    "functions": f"""
        SELECT nspname, proname, prosrc, prosecdef, provolatile, proconfig, proacl::text FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
        WHERE {_NOT_THE_SYSTEMS} ORDER BY 1, 2
    """,
    "constraints": f"""
        SELECT nspname, conname, pg_get_constraintdef(pg_constraint.oid)
        FROM pg_constraint JOIN pg_namespace ON pg_namespace.oid = connamespace WHERE {_NOT_THE_SYSTEMS} ORDER BY 1, 2
    """,
    "triggers": "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger ORDER BY 1, 2",
    "comments": "SELECT classoid::regclass::text, description FROM pg_description WHERE objoid >= 16384 ORDER BY 1, 2",
    "event triggers": "SELECT evtname, evtevent FROM pg_event_trigger ORDER BY 1",
    "default privileges": "SELECT defaclrole, defaclobjtype, defaclacl::text FROM pg_default_acl ORDER BY 1, 2",
    "schemas": f"SELECT nspname, nspacl::text FROM pg_namespace WHERE {_NOT_THE_SYSTEMS} ORDER BY 1",
}

Catalogue = dict[str, list[tuple[Any, ...]]]


def job_table(url: str, schema: str = "public") -> Catalogue:
    """The queue's tables in every detail, with trigger and function, without the name of their schema."""
    found = {}
    with connect(url) as connection:
        connection.execute("SELECT set_config('search_path', %s, false)", [schema])
        for table in ("jobqueue_jobs", "jobqueue_idle"):
            parameters = {"table": f"{schema}.{table}", "schema": schema}
            for what, query in _TABLE.items():
                name = what if table == "jobqueue_jobs" else f"{table}: {what}"
                found[name] = connection.execute(query, parameters).fetchall()
    return found


def everything(url: str) -> Catalogue:
    """All objects of the database that are not the system's; Alembic's version table is left out."""
    with connect(url) as connection:
        found = {what: connection.execute(query).fetchall() for what, query in _EVERYTHING.items()}
    return {
        what: [row for row in rows if not any("alembic_version" in str(value) for value in row)]
        for what, rows in found.items()
    }
