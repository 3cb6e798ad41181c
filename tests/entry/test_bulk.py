"""enqueue_many(): sessions and connections, sync and async; every position is answered, or nothing is inserted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_jobqueue import Enqueued, EnqueueError, Job, Registry, enqueue, enqueue_many, ref
from sa_jobqueue.store import inserts
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows, statements


@Registry().handler("mail.send")
def send(to: int) -> None:
    """Somebody's handler."""


def batch() -> list[Job]:
    """1,000 jobs, of which #500 has a key that is taken, and #700 and #701 share a new one."""
    keys = {500: "K", 700: "shared", 701: "shared"}
    return [enqueue("k", {"n": n}, idempotency_key=keys.get(n)) for n in range(1000)]


@pytest.mark.parametrize("form", ["session", "connection", "add"])
def test_duplicates_spoil_nothing(form: str, client: Client, application: Engine) -> None:
    """998 new rows, and each position is told; the caller's own row is stored as well."""
    with Session(application) as session, session.begin():
        session.add(held := enqueue("held", idempotency_key="K"))
    new = batch()

    def in_session(session: Session) -> list[Enqueued | None]:
        session.add(Document(title="order"))
        if form == "session":
            return list(enqueue_many(session, new))
        session.add_all(new)
        session.flush()
        return [job.enqueued for job in new]

    told = (
        client.run_on_connection(lambda connection: enqueue_many(connection, new))
        if form == "connection"
        else client.run(in_session)
    )
    assert held.enqueued
    assert [number for number, enqueued in enumerate(told) if not enqueued.created] == [500, 701]
    assert told[500] == Enqueued(held.enqueued.id, "existing")
    assert told[701] == Enqueued(told[700].id, "existing")
    stored = dict(rows(application, "id", "payload"))
    assert len(stored) == 999
    assert all(stored[enqueued.id] == {"n": n} for n, enqueued in enumerate(told) if enqueued.created)
    assert [job.enqueued for job in new] == told


def test_async_targets_answer_with_an_awaitable(application: Engine) -> None:
    """AsyncSession, AsyncConnection and async_scoped_session are passed as they are."""
    url = application.url.set(drivername="postgresql+asyncpg")

    async def main() -> list[Enqueued]:
        engine = create_async_engine(url)
        told = []
        async with AsyncSession(engine) as session:
            told += await enqueue_many(session, [enqueue("session", idempotency_key="x")])
            await session.commit()
        async with engine.begin() as connection:
            told += await enqueue_many(connection, (enqueue("connection") for _ in range(2)))
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        told += await enqueue_many(scoped, [enqueue("scoped", idempotency_key="x")])
        await scoped.remove()
        await engine.dispose()
        return told

    told = asyncio.run(main())
    assert [enqueued.outcome for enqueued in told] == ["created", "created", "created", "existing"]
    assert rows(application, "kind") == ["session", "connection", "connection"]


def test_an_async_target_gives_a_coroutine(application: Engine) -> None:
    """Python warns of one that is never awaited, and type checkers flag it: jobs that are not inserted are not silent."""

    async def main() -> None:
        engine = create_async_engine(application.url.set(drivername="postgresql+asyncpg"))
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        for target in (AsyncSession(engine), engine.connect(), scoped):
            answer = enqueue_many(target, [enqueue("k")])
            assert inspect.iscoroutine(answer)
            answer.close()
        await engine.dispose()

    asyncio.run(main())


def test_a_scoped_session_is_passed_as_it_is(application: Engine) -> None:
    """The proxy stands for the session of this thread."""
    scoped = scoped_session(sessionmaker(application))
    enqueue_many(scoped, [enqueue("k")])
    scoped.rollback()
    enqueue_many(scoped, [enqueue("kept")])
    scoped.commit()
    scoped.remove()
    assert rows(application, "kind") == ["kept"]


def test_nothing_is_flushed_and_no_object_joins_the_session(application: Engine, session: Session) -> None:
    """The call inserts jobs and leaves the session's own work alone."""
    session.add(Document(title="a"))
    job = enqueue("k")
    with statements(application) as seen:
        told = enqueue_many(session, [job])
    assert len(seen) == 1
    assert len(session.new) == 1
    assert job not in session
    assert job.enqueued == told[0]
    session.rollback()
    assert rows(application, "id") == []


def test_a_large_batch_goes_in_chunks_with_its_keys_sorted_over_all(application: Engine) -> None:
    """Chunks bound a statement; ids follow the keys over the whole call; a repeated key finds its first chunk."""
    new = [enqueue("k", n, idempotency_key=f"{(n * 7919) % 11000:05d}") for n in range(11_000)]
    new.append(enqueue("k", idempotency_key="00000"))
    with application.connect() as connection, statements(application) as seen:
        told = enqueue_many(connection, iter(new))
        connection.commit()
    assert [text.split()[0] for text in seen] == ["INSERT"] * 3 + ["COMMIT"]
    assert told[-1] == Enqueued(told[0].id, "existing")
    assert rows(application, "unique_key") == [f"{n:05d}" for n in range(11_000)]
    assert dict(rows(application, "id", "payload")) == {one.id: n for n, one in enumerate(told[:-1])}


def test_large_payloads_go_in_smaller_chunks(
    monkeypatch: pytest.MonkeyPatch, application: Engine, session: Session
) -> None:
    """A statement's text is bounded as well as its rows; one job always fits."""
    monkeypatch.setattr(inserts, "CHUNK_TEXT", 250)
    new = [enqueue("k", "x" * size) for size in (98, 98, 98, 500, 10, 10)]
    with statements(application) as seen:
        enqueue_many(session, new)
    assert len(seen) == 4
    session.commit()
    assert rows(application, "payload") == [job.payload for job in new]


def test_what_separates_payloads_on_the_way_may_stand_in_one(application: Engine, session: Session) -> None:
    """JSON writes control characters as escapes, in names as well."""
    new = [enqueue("k", {"a\x1eb": "\x1e"}), enqueue("k", "\x1e"), enqueue("k", ['\n\x1e,"\\'])]
    enqueue_many(session, new)
    session.commit()
    assert rows(application, "payload") == [{"a\x1eb": "\x1e"}, "\x1e", ['\n\x1e,"\\']]


def test_an_empty_batch_sends_nothing(application: Engine) -> None:
    """Not even a transaction is begun."""
    with application.connect() as connection, statements(application) as seen:
        assert enqueue_many(connection, []) == []
    assert seen == []


def test_an_autocommit_connection_is_the_callers_choice(application: Engine) -> None:
    """The jobs are there at once, without a COMMIT of ours."""
    with application.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        enqueue_many(connection, [enqueue("k")])
        assert rows(application, "kind") == ["k"]
        taken = [enqueue("k", idempotency_key=key, on_conflict="raise") for key in "ab"]
        with pytest.raises(EnqueueError, match="each statement stands alone"):
            enqueue_many(connection, taken)
        assert enqueue_many(connection, taken[:1])[0].created


@pytest.mark.parametrize("form", ["add", "bulk"])
def test_a_session_in_autocommit_is_refused(form: str, client: Client, application: Engine) -> None:
    """Its rollback would leave the job there, which is what nobody expects of a session."""

    def work(session: Session) -> None:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        if form == "add":
            session.add(enqueue("k"))
        with pytest.raises(EnqueueError, match="the session's engine is in AUTOCOMMIT"):
            session.flush() if form == "add" else enqueue_many(session, [enqueue("k")])
        session.expunge_all()

    client.run(work)
    assert rows(application, "id") == []


@pytest.mark.parametrize("client_kind", ["sync", "asyncpg"])
@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (lambda: enqueue("k", {"a": [{"b": "x\0y"}]}), ValueError, r"\$\.a\[0\]\.b"),
        (lambda: enqueue("k\0"), ValueError, "kind"),
        (lambda: "no job", TypeError, "expected a Job from enqueue"),
        (lambda: send.call(7), TypeError, r"a call of 'mail.send': wrap it in enqueue\(\)"),
        (lambda: send, TypeError, r"write enqueue\(send\.call\(\.\.\.\)\)"),
        (lambda: Job(kind="k", payload=b""), TypeError, "bytes"),
        (
            lambda: enqueue("k", {"id": ref(Document(title="a"))}),
            EnqueueError,
            r"ref\(Document\).*session\.flush\(\) first",
        ),
    ],
)
def test_a_bad_item_is_named_by_its_index_and_nothing_is_inserted(
    client_kind: str, bad: Any, error: type[Exception], says: str, application: Engine
) -> None:
    """Whether the item is wrong or the iterable raises; the session needs no rollback."""
    client = Client(client_kind, application.url.render_as_string(hide_password=False))

    def items() -> Iterator[Any]:
        yield enqueue("good", idempotency_key="x")
        yield enqueue("good")
        yield bad()

    def work(session: Session) -> None:
        session.add(Document(title="order"))
        with pytest.raises(error, match=says) as caught:
            enqueue_many(session, items())
        assert any("at index 2" in note for note in caught.value.__notes__)

    client.run(work)
    assert rows(application, "id") == []
    with Session(application) as session:
        assert session.query(Document.title).scalar() == "order"


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (enqueue("k"), r"got Job: write \[job\]"),
        (send.call(7), r"got a call of 'mail\.send': wrap it in enqueue\(\)"),
        (send, "got the handler of 'mail.send'"),
        (None, "got NoneType"),
    ],
)
def test_one_in_the_place_of_several_is_named(one: Any, says: str, session: Session) -> None:
    """Before anything is sent."""
    with pytest.raises(TypeError, match=rf"enqueue_many\(\): expected several jobs second, {says}"):
        enqueue_many(session, one)
    assert not session.in_transaction()


def test_jobs_that_belong_elsewhere_are_refused(session: Session) -> None:
    """Each would be inserted twice."""
    twice, pending, stored = enqueue("twice"), enqueue("pending"), enqueue("stored")
    session.add(stored)
    session.flush()
    session.add(pending)
    for items, error, says in (
        ([twice, twice], ValueError, "there twice"),
        ([pending], EnqueueError, "added to a session"),
        ([stored], EnqueueError, "stored already"),
    ):
        with pytest.raises(error, match=says):
            enqueue_many(session, items)


def test_references_to_stored_rows_are_resolved(application: Engine, session: Session) -> None:
    """A row that was flushed after ref() has its key by now, in a session or out of it."""
    document = Document(title="a")
    job = enqueue("k", {"document_id": ref(document)})
    session.add(document)
    session.commit()
    with application.begin() as connection:
        enqueue_many(connection, [job])
    assert rows(application, "payload") == [{"document_id": document.id}]


def test_a_wrong_target_is_named() -> None:
    """An engine is no transaction."""
    engine = create_engine(make_url("postgresql+psycopg://nobody@nowhere/none"))
    with pytest.raises(TypeError, match=r"expected a Session, Connection, .* got Engine"):
        enqueue_many(engine, [enqueue("k")])  # type: ignore[call-overload]


def test_another_database_is_refused_before_any_sql() -> None:
    """The message names the dialect."""
    with create_engine("sqlite://").connect() as connection, pytest.raises(EnqueueError, match="sqlite"):
        enqueue_many(connection, [enqueue("k")])


def test_a_trigger_that_swallows_rows_is_noticed(application: Engine, session: Session) -> None:
    """Without the count an id would be given to the wrong job."""
    with application.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF new.kind = 'lost' THEN RETURN NULL; END IF; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER swallow BEFORE INSERT ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION swallow()"
        )
    with pytest.raises(EnqueueError, match="3 jobs were sent and 2 rows came back"):
        enqueue_many(session, [enqueue(kind) for kind in ("a", "lost", "b")])


def test_an_object_that_was_inserted_in_bulk_makes_no_second_job(
    application: Engine, session: Session
) -> None:
    """Added, through a relationship or in bulk again, before the commit and after it; what was rolled back may come again."""
    first, second = enqueue("first"), enqueue("second")
    savepoint = session.begin_nested()
    enqueue_many(session, [second])
    savepoint.rollback()
    enqueue_many(session, [first])
    text = r"job \d+ is stored already, and this is the object.* by its id \(job\.enqueued\.id\), or make another"
    for _ in range(2):
        session.add(document := Document(title="a", job=first))
        with pytest.raises(EnqueueError, match=text):
            session.flush()
        session.expunge(document)
        session.expunge(first)
        with pytest.raises(EnqueueError, match=text):
            enqueue_many(session, [enqueue("third"), first])
        session.commit()
    session.add(second)
    session.commit()
    assert sorted(rows(application, "kind")) == ["first", "second"]


def test_an_object_with_a_key_finds_its_own_row(application: Engine, session: Session) -> None:
    """Whatever brings it in again."""
    job = enqueue("k", idempotency_key="x")
    (told,) = enqueue_many(session, [job])
    session.add(Document(title="a", job=job))
    session.commit()
    assert rows(application, "id") == [told.id]
