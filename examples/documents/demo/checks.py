"""The last step: the numbers that must add up, whatever happened on the way."""

from __future__ import annotations

from examples.documents.demo.scene import Scene
from examples.documents.demo.trouble import DemoError
from examples.documents.embedder import MODEL

WITHOUT_EMBEDDING = (
    "SELECT count(*) FROM documents WHERE 1 <> (SELECT count(*) FROM embeddings"
    " WHERE document_id = documents.id AND model_version = :model)"
)
WITHOUT_JOB = (
    "SELECT count(*) FROM documents WHERE 1 <> (SELECT count(*) FROM jobqueue_jobs"
    " WHERE (payload->>'document_id')::bigint = documents.id)"
)
NOT_DONE = "SELECT count(*) FROM jobqueue_jobs WHERE status <> 'done'"
HELD = "SELECT count(*) FROM jobqueue_jobs WHERE lease_token IS NOT NULL"
DOCUMENTS = "SELECT count(*) FROM documents"
EMBEDDINGS = "SELECT count(*) FROM embeddings"
ATTEMPTS = "SELECT sum(attempts) FROM jobqueue_jobs"


def check_everything(scene: Scene, *, documents: int, unreadable: int) -> None:
    """One embedding for each document and every job done, but for documents of the source that hold no text.

    Raises DemoError naming all that doesn't hold.
    """
    terminal = scene.terminal
    terminal.step("The check: exactly one embedding for each document and model, every job done")
    if unreadable:
        terminal.say(f"{unreadable} of the documents hold no text; their jobs stay dead, with the reason.")
    wrong = []

    def check(what: str, sql: str, expected: int, **parameters: str) -> None:
        ((found,),) = terminal.prove(what, sql, **parameters)
        if found != expected:
            wrong.append(f"{what}: {found}, and it must be {expected}")

    check("Documents", DOCUMENTS, documents)
    check("Embeddings", EMBEDDINGS, documents - unreadable)
    check("Documents without exactly one embedding", WITHOUT_EMBEDDING, unreadable, model=MODEL.version)
    check("Documents without exactly one job", WITHOUT_JOB, 0)
    check("Jobs that are not done", NOT_DONE, unreadable)
    check("Jobs that somebody holds", HELD, 0)
    terminal.prove("Attempts that it took", ATTEMPTS)
    if wrong:
        raise DemoError("the check found\n  " + "\n  ".join(wrong))
    terminal.say("All adds up.")
