"""Collections of jobs that nobody has loaded, or that are never loaded whole: what is added to them is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, Table, select
from sqlalchemy.orm import Session

from sa_jobqueue import Job, enqueue, ref
from sa_jobqueue.errors import EnqueueError
from tests.entry.application import Document, Folder, queried_jobs, raising_jobs, written_jobs
from tests.entry.conftest import Client
from tests.entry.counting import rows

Adds = Callable[[Folder, Any], None]
COLLECTIONS = [
    pytest.param(written_jobs, lambda folder, job: folder.written.add(job), id="write only"),
    pytest.param(queried_jobs, lambda folder, job: folder.queried.append(job), id="dynamic"),
    pytest.param(raising_jobs, lambda folder, job: job.folders.append(folder), id="from the other side"),
]


@pytest.mark.parametrize(("table", "add"), COLLECTIONS)
@pytest.mark.parametrize("stored", [True, False], ids=["stored owner", "new owner"])
def test_a_duplicate_gives_way_to_the_holder_that_the_session_has(
    stored: bool, table: Table, add: Adds, client: Client, application: Engine
) -> None:
    """Its association row is that of the holder; SQLAlchemy would drop the one of an object outside the session."""
    with Session(application) as session, session.begin():
        session.add_all([enqueue("k", idempotency_key="x"), *([Folder()] if stored else [])])

    def work(session: Session) -> list[int]:
        holder = session.scalars(select(Job)).one()
        folder = session.scalars(select(Folder)).one() if stored else Folder()
        session.add(folder)
        for key in ("x", "y", "x", "y"):
            add(folder, job := enqueue("k", idempotency_key=key))
            session.add(job)
        session.flush()
        assert holder in session
        return sorted(session.scalars(select(table.c.job_id)))

    related = client.run(work)
    assert len(related) == 2
    assert related == sorted(rows(application, "id"))


@pytest.mark.parametrize(("table", "add"), COLLECTIONS)
def test_a_waiting_job_in_it_is_refused_before_any_sql(
    table: Table, add: Adds, application: Engine, session: Session
) -> None:
    """Its association row would need an id that the job gets last."""
    session.add(folder := Folder())
    session.flush()
    session.add(document := Document(title="a"))
    add(folder, job := enqueue("k", {"document_id": ref(document)}))
    session.add(job)
    with pytest.raises(EnqueueError, match="needs the job's id"):
        session.flush()
    session.expunge(job)
    session.expire(folder)
    session.commit()
    assert document.id
    assert session.execute(select(table)).all() == []
