"""The step with the uploads: a transaction that fails, the same document twice, then all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from examples.documents.demo.scene import Scene, Uploaded
from examples.documents.demo.trouble import expect
from examples.documents.embedder import MODEL, HashingModel
from examples.documents.sources import Source, mistaken
from examples.documents.uploads import upload
from sa_jobqueue import Enqueued

COUNTS = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM jobqueue_jobs)"
STATUSES = "SELECT status, count(*) FROM jobqueue_jobs GROUP BY status ORDER BY status"


def upload_all(scene: Scene, sources: Sequence[Source]) -> Uploaded:
    """Upload everything, and one document in the wrong form, each in a transaction of its own."""
    terminal = scene.terminal
    terminal.step("Uploads: one transaction stores a document and adds its job")
    _fail(scene, sources[0])
    _twice(scene, sources[0])

    wrong, _ = mistaken()
    everything = [*sources, wrong]
    jobs: dict[int, int] = {}
    for number, source in enumerate(everything, 1):
        document, enqueued = _upload(scene, source)
        jobs[document] = enqueued.id
        terminal.progress(f"{number} uploads")
    terminal.say(
        f"{len(everything)} uploads, the last of them in the wrong form: {wrong.title}, {wrong.origin}"
    )
    counted = terminal.prove("Documents and jobs, each content once", COUNTS)
    expect(counted == [(len(jobs), len(jobs))], f"{len(jobs)} documents were uploaded, each with one job")
    terminal.prove("Jobs", STATUSES)
    stand_in = ", which stands in for a real one" if isinstance(MODEL, HashingModel) else ""
    terminal.say(f"The jobs embed them with the model {MODEL.version}{stand_in}.")
    return Uploaded(jobs, mistaken=list(jobs)[-1])


def _upload(scene: Scene, source: Source) -> tuple[int, Enqueued]:
    with Session(scene.engine) as session, session.begin():
        document, job = upload(session, source)
        session.flush()
        assert job.enqueued is not None
        return document.id, job.enqueued


def _fail(scene: Scene, source: Source) -> None:
    empty = replace(source, title="empty", content=b"")
    enqueued = None
    try:
        with Session(scene.engine) as session, session.begin():
            _, job = upload(session, source)
            session.flush()
            enqueued = job.enqueued
            upload(session, empty)
    except IntegrityError as error:
        cause = str(error.orig).splitlines()[0]
        scene.terminal.say(
            f"A transaction adds the document {source.title} and its job, {enqueued}, then fails:"
        )
        scene.terminal.say(f"  {cause}")
        counted = scene.terminal.prove("Documents and jobs that it leaves", COUNTS)
        expect(counted == [(0, 0)], "a transaction that was rolled back left something")
    expect(enqueued is not None, "the job of the first upload was not inserted")


def _twice(scene: Scene, source: Source) -> None:
    first, second = _upload(scene, source), _upload(scene, source)
    scene.terminal.say(f"The document {source.title} uploaded twice, in two transactions:")
    scene.terminal.say(f"  {first[1]}")
    scene.terminal.say(f"  {second[1]}")
    counted = scene.terminal.prove("Documents and jobs", COUNTS)
    outcomes = (first[1].outcome, second[1].outcome)
    expect(outcomes == ("created", "existing"), f"the outcomes were {outcomes}")
    expect(first[1].id == second[1].id, "the two uploads got different jobs")
    expect(counted == [(1, 1)], "the second upload stored something")
