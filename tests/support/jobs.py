"""Jobs put into the table as a test needs them, past every verb, and read back as they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from sa_jobqueue.models import jobs

MINUTE = timedelta(minutes=1)


def add_job(engine: Engine, **columns: Any) -> int:
    """Insert one job, committed; what is not given is the table's default."""
    with engine.begin() as connection:
        return insert_job(connection, **columns)


def insert_job(connection: Connection, **columns: Any) -> int:
    """The same inside the caller's transaction."""
    # With a value for `settled_token` nothing refuses a key.
    row = {"kind": "test", "settled_token": None, **columns}
    statement = insert(jobs).values(row).returning(jobs.c.id)
    return int(connection.execute(statement).scalar_one())


def add_running(engine: Engine, token: UUID, *, lease: timedelta = MINUTE, **columns: Any) -> int:
    """A job that somebody holds with this token; a negative lease is one that is past."""
    held = {
        "status": "running",
        "attempts": 1,
        "lease_token": token,
        "lease_until": func.clock_timestamp() + lease,
        "leased_by": "holder",
    }
    return add_job(engine, **{**held, **columns})


def keyed(key: str, *, scope: str = "unfinished", held: bool = True) -> dict[str, Any]:
    """The columns of an idempotency key; `held` False is what a finished job of scope `unfinished` has left."""
    return {"idempotency_key": key, "key_scope": scope, "unique_key": key if held else None}


def change(engine: Engine, job_id: int, **columns: Any) -> None:
    """Write columns past every verb."""
    with engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**columns))


def read_job(engine: Engine, job_id: int) -> Row[Any]:
    """All columns of one job, as committed."""
    with engine.connect() as connection:
        return connection.execute(select(jobs).where(jobs.c.id == job_id)).one()


def server_time(engine: Engine) -> Any:
    """The database's clock."""
    with engine.connect() as connection:
        return connection.execute(select(func.clock_timestamp())).scalar_one()


def refuse(engine: Engine, job_id: int, act: str, *, when: str = "true") -> None:
    """A trigger of somebody else's that does this to every update of one job while a condition holds."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF new.id = {job_id} AND {when} THEN {act}; END IF; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
