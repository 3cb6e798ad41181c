"""The story, step by step. What is printed comes from queries; what must hold is checked, and ends it when it doesn't."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from examples.documents.demo.checks import check_everything
from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.place import MIGRATE, Place, migrate
from examples.documents.demo.running import crash, recover, redrive_corrected
from examples.documents.demo.scene import Scene
from examples.documents.demo.terminal import Terminal
from examples.documents.demo.trouble import expect
from examples.documents.demo.uploading import upload_all
from examples.documents.search import search
from examples.documents.sources import Source

TABLES = (
    "SELECT string_agg(tablename, ', ' ORDER BY tablename) FROM pg_tables WHERE schemaname = current_schema()"
)


def tell(place: Place, leftovers: Leftovers, sources: Sequence[Source], *, question: str) -> None:
    """All steps, on a database with nothing in it. Raises DemoError at the first thing that doesn't hold."""
    engine = create_engine(place.url)
    scene = Scene(
        engine=engine, terminal=Terminal(engine), environment=place.environment, leftovers=leftovers
    )
    terminal = scene.terminal
    try:
        terminal.step(f"A database of the application: {place.description}")
        terminal.say(f"$ {' '.join(MIGRATE)}")
        migrate(place)
        terminal.prove("Its tables and the queue's, made by one Alembic history", TABLES)

        uploaded = upload_all(scene, sources)
        lost = crash(scene, uploaded)
        with scene.runner("runner-2", uploaded) as runner:
            unreadable = recover(scene, runner, uploaded, lost)
            redrive_corrected(scene, runner, uploaded)
            code = runner.stop()
        expect(code == 0, f"runner-2 was told to stop (SIGTERM) and ended with code {code}")

        terminal.step(f'A search for "{question}": cosine and title of the nearest')
        with Session(engine) as session:
            hits = search(session, question)
        for hit in hits:
            terminal.say(f"{hit.score:.3f}  {hit.title} ({hit.source})")
        expect(bool(hits), "the search found nothing")

        check_everything(scene, documents=len(uploaded.jobs), unreadable=unreadable)
    finally:
        engine.dispose()
