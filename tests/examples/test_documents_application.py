"""The application of examples/documents without its demo: texts, vectors, sources, uploads and the handler."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from examples.documents import jobs
from examples.documents.embedder import MODEL, average
from examples.documents.extraction import (
    CHUNK_WORDS,
    OVERLAP_WORDS,
    MalformedDocumentError,
    chunks,
    extract,
)
from examples.documents.models import Base, Document, Embedding
from examples.documents.search import search
from examples.documents.service import ModelUnavailableError
from examples.documents.sources import Source, folder, installed, mistaken
from examples.documents.uploads import upload
from sa_jobqueue.testing import Drained, assert_enqueued, drain, perform, refute_enqueued

ROOT = Path(__file__).resolve().parents[2]
TEXT = Source("kraken", "a test", "text/plain", b"A kraken lives in the deep sea.")


@pytest.fixture
def application(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A database with the tables of the application and of the queue, which the handlers use."""
    Base.metadata.create_all(engine)
    monkeypatch.setattr(jobs, "engine", lambda: engine)
    return engine


@pytest.mark.parametrize(
    ("media_type", "content", "expected"),
    [
        ("text/plain", b"one  two\n\nthree", "one two three"),
        ("text/plain", "\ufeffbyte order mark".encode(), "byte order mark"),
        ("text/plain", "Zürich \u201cquoted\u201d".encode("cp1252"), "Zürich \u201cquoted\u201d"),
        ("text/plain", "wide letters".encode("utf-16"), "wide letters"),
        ("text/plain", b"C:\\\x08in is a slip of the pen, " + b"and no reason to refuse a text " * 4, None),
        ("text/html", b"<head><style>p{}</style></head><p>Bread &amp; <b>butter</b>", "Bread & butter"),
        ("text/markdown", b"# Title\n\n- *one* [two](http://x.y)\n<!-- no -->![three](a.png)", None),
        (
            "text/x-rst",
            b"Title\n=====\n\n.. image:: a.png\n   :alt: no\n\n`two <http://x.y>`_ and ``three``",
            None,
        ),
    ],
)
def test_extraction(media_type: str, content: bytes, expected: str | None) -> None:
    """What a reader would read is kept, whatever the encoding; markup and what only programs read is gone."""
    found = extract(content, media_type)
    if expected is not None:
        assert found == expected
    assert not set("\x08#*=`[]<>_") & set(found)
    assert "http" not in found
    assert "image" not in found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(mistaken()[0].content, id="byte code"),
        pytest.param(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff", id="gzip"),
        pytest.param(b"\xff\xfe\x00\xd8", id="half a letter in utf-16"),
        pytest.param(b" \n\t ", id="no word"),
    ],
)
def test_what_is_no_text_is_malformed(content: bytes) -> None:
    """The one error that no retry can mend: bytes that aren't text are never taken for one."""
    with pytest.raises(MalformedDocumentError):
        extract(content, "text/plain")


@pytest.mark.parametrize("length", [1, OVERLAP_WORDS, CHUNK_WORDS, CHUNK_WORDS + 1, 3 * CHUNK_WORDS + 7])
def test_chunks_cover_every_word(length: int) -> None:
    """No word of a document is lost between chunks, none is too long, and each begins with the end of the last."""
    words = [str(number) for number in range(length)]
    pieces = [piece.split() for piece in chunks(" ".join(words))]
    assert all(len(piece) <= CHUNK_WORDS for piece in pieces)
    assert pieces[0] + [word for piece in pieces[1:] for word in piece[OVERLAP_WORDS:]] == words


def test_the_embedder_is_deterministic_across_processes() -> None:
    """The same text gives the same vector in every runner, whatever Python's hash seed is."""
    program = "from examples.documents.embedder import MODEL; print(MODEL.embed(['parse command line arguments'])[0])"
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{MODEL.embed(['parse command line arguments'])[0]}\n"}


def test_vectors_have_length_one_and_know_their_neighbours() -> None:
    """The cosine is a plain product, and related words are nearer to each other than strange ones."""
    parse, parsing, sea = MODEL.embed(["parse arguments", "parsing of an argument", "the deep sea"])
    mean = average([parse, parsing])
    for vector in (parse, parsing, sea, mean):
        assert math.isclose(sum(x * x for x in vector), 1.0)

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert cosine(parse, parsing) > 0.3 > cosine(parse, sea)
    assert cosine(mean, parse) > cosine(parse, parsing)


def test_sources_of_this_python() -> None:
    """The default documents are what others wrote, long enough to be found by, each a text."""
    found = list(installed())
    titles = {source.title for source in found}
    assert {"sqlalchemy", "alembic", "argparse"} <= titles
    assert not {"sa-jobqueue", "optparse"} & titles
    assert all(extract(source.content, source.media_type) for source in found)


def test_sources_of_a_folder(tmp_path: Path) -> None:
    """Files that hold text are found at any depth, in a stable order; empty and other ones are left out."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name, content in {"b/c/deep.MD": "x", "a.txt": "x", "empty.html": "", "z.py": "x"}.items():
        (tmp_path / name).write_text(content)
    assert [(source.title, source.origin, source.media_type) for source in folder(tmp_path)] == [
        ("a", "a.txt", "text/plain"),
        ("deep", str(Path("b/c/deep.MD")), "text/markdown"),
    ]


def test_an_upload_is_one_transaction(application: Engine) -> None:
    """Document and job appear together or not at all; the same content again is the same document and job."""
    with Session(application) as session:
        upload(session, TEXT)
        session.flush()
        session.rollback()
        assert session.scalar(select(func.count()).select_from(Document)) == 0
        refute_enqueued(session)
    answers = []
    for _ in range(2):
        with Session(application) as session, session.begin():
            document, job = upload(session, TEXT)
            session.flush()
            assert job.enqueued is not None
            answers.append((document.id, job.enqueued.id, job.enqueued.outcome))
    assert [outcome for *_, outcome in answers] == ["created", "existing"]
    assert answers[0][:2] == answers[1][:2]
    with Session(application) as session:
        assert_enqueued(session, jobs.embed, {"document_id": answers[0][0]}, queue="ai", count=1)


def test_the_handler_stores_one_embedding_however_often_it_runs(application: Engine) -> None:
    """At least once is enough: a second run of the same job updates the row of the first."""
    with Session(application) as session, session.begin():
        document, _ = upload(session, TEXT)
        session.flush()
        number = document.id
    with Session(application) as session, session.begin():
        assert drain(session, jobs.registry) == Drained(done=1)
    with Session(application) as session, session.begin():
        again = jobs.embed.call(document_id=number, model=MODEL.version)
        assert perform(again, attempt=2, session=session).status == "done"
    with Session(application) as session:
        (embedding,) = session.scalars(select(Embedding))
        assert (embedding.document_id, embedding.model_version, embedding.chunks) == (
            number,
            MODEL.version,
            1,
        )
        (hit,) = search(session, "a KRAKEN lives in the deep sea")
    assert hit.title == "kraken"
    assert hit.score == pytest.approx(1.0, abs=1e-5)


def test_the_handler_discards_what_can_never_be_done(application: Engine) -> None:
    """A document that was deleted and a model that is not here come to rest as dead, with the reason."""
    for model, reason in ((MODEL.version, "document 7 was deleted"), ("another", "no model 'another' here")):
        run = perform(jobs.embed.call(document_id=7, model=model))
        assert run.status == "dead"
        assert reason in str(run.reason)


def test_the_outage_is_over_at_the_second_attempt(
    application: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rehearsed failure is a real exception that the handler's retry policy gets to see, once per document."""
    with Session(application) as session, session.begin():
        document, _ = upload(session, TEXT)
        session.flush()
        number = document.id
    monkeypatch.setenv("DOCUMENTS_MODEL_503", f"99,{number}")
    call = jobs.embed.call(document_id=number, model=MODEL.version)
    failed = perform(call, raise_errors=False)
    assert isinstance(failed.exception, ModelUnavailableError)
    assert (failed.verb, failed.status) == ("retry", "ready")
    with Session(application) as session, session.begin():
        assert perform(call, attempt=2, session=session).status == "done"
