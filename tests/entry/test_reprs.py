"""A Job shows no payload, wherever it is in its life: its repr ends up in logs and debuggers."""

from __future__ import annotations

from sqlalchemy.orm import Session, undefer

from sa_jobqueue import Job, enqueue

SECRET = "S3CR3T-42"


def test_no_state_of_a_job_shows_its_payload(session: Session) -> None:
    """Transient, pending, stored, expired, loaded again with its payload, and detached."""
    job = enqueue("k", {"token": SECRET})
    shown = [repr(job)]
    session.add(job)
    shown.append(repr(job))
    session.flush()
    shown.append(repr(job))
    session.commit()
    shown.append(repr(job))
    loaded = session.get_one(Job, job.enqueued.id, options=[undefer(Job.payload)], populate_existing=True)
    assert loaded.payload == {"token": SECRET}
    shown.append(f"{loaded} {[loaded]} {session.new}")
    session.close()
    shown.append(f"{loaded!r} {job!s} {job.enqueued}")
    assert SECRET not in "".join(shown)
    assert "kind='k'" in shown[-2]
