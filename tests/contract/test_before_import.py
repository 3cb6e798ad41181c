"""Sessions and sessionmakers that are older than the import of sa_jobqueue, as a large application has them."""

from __future__ import annotations

import subprocess
import sys

from tests.contract.conftest import Place

SCRIPT = """
import asyncio, sys
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

url = make_url(sys.argv[1])

class Own(Session):
    pass

made, made_async = {}, {}
for driver in ("psycopg", "psycopg2"):
    engine = create_engine(url.set(drivername=f"postgresql+{driver}"))
    registry = scoped_session(sessionmaker(engine))
    registry()
    made |= {
        f"{driver} Session": Session(engine),
        f"{driver} subclass": Own(engine),
        f"{driver} sessionmaker": sessionmaker(engine),
        f"{driver} scoped_session": registry,
    }
for driver in ("psycopg", "asyncpg"):
    engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
    made_async |= {
        f"{driver} AsyncSession": AsyncSession(engine),
        f"{driver} async_sessionmaker": async_sessionmaker(engine),
    }
assert not [name for name in sys.modules if name.startswith("sa_jobqueue")]

import sa_jobqueue
from sa_jobqueue import enqueue

def new(name):
    return enqueue(name, idempotency_key="the same"), enqueue(name, idempotency_key=name)

def check(first, second):
    assert first.enqueued.outcome in ("created", "existing"), first.enqueued
    assert second.enqueued.created

for name, session in made.items():
    session = session() if isinstance(session, sessionmaker) else session
    session.add_all(jobs := new(name))
    session.commit()
    check(*jobs)
    session.close()

async def main():
    for name, session in made_async.items():
        session = session() if isinstance(session, async_sessionmaker) else session
        session.add_all(jobs := new(name))
        await session.commit()
        check(*jobs)
        await session.close()
        await session.bind.dispose()

asyncio.run(main())
print(len(made) + len(made_async))
"""


def test_sessions_that_are_older_than_the_import(place: Place) -> None:
    """Each of them inserts its jobs with all guarantees: the key that all ask for is held by the first."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, place.url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr
    assert len(place.jobs()) == 12 + 1
