"""INSERTs that go past enqueue(): what would hurt is refused before it is sent, and the rest works as it always did."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from sqlalchemy import Dialect, Engine, MetaData, bindparam, create_engine, insert, literal, select
from sqlalchemy.dialects import mysql, oracle, postgresql, sqlite
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from sa_jobqueue import ConfigurationError, EnqueueError, Job, direct_inserts, enqueue, enqueue_many
from sa_jobqueue.models import jobs, metadata
from sa_jobqueue.records import NewJob
from sa_jobqueue.store.callers_connection import in_autocommit
from sa_jobqueue.store.inserts import insert_jobs
from tests.entry.application import Document
from tests.entry.conftest import Client
from tests.entry.counting import rows, statements

SECRET = "S3CR3T-42"
KEYED = {"kind": "k", "payload": {"token": SECRET}, "idempotency_key": "x", "key_scope": "row"}
BULK: dict[str, Callable[[Session], object]] = {
    "objects": lambda session: session.bulk_save_objects([enqueue("k", {"token": SECRET})]),
    "keyed objects": lambda session: session.bulk_save_objects(
        [enqueue("k", idempotency_key="x")], return_defaults=True
    ),
    "constructed objects": lambda session: session.bulk_save_objects([Job(kind="k"), Job(kind="k")]),
    "mappings": lambda session: session.bulk_insert_mappings(Job.__mapper__, [{"kind": "k"}]),
}
WITH_A_KEY: dict[str, Callable[[Session], object]] = {
    "Job": lambda session: session.execute(insert(Job), [KEYED]),
    "Job returning": lambda session: session.scalars(insert(Job).returning(Job), [KEYED]).all(),
    "values of Job": lambda session: session.execute(insert(Job).values(KEYED)),
    "table": lambda session: session.execute(insert(jobs).values(unique_key="x", **KEYED)),
    "the second of several": lambda session: session.execute(
        insert(jobs), [{"kind": "k", "idempotency_key": None}, {"kind": "k", "idempotency_key": "x"}]
    ),
    "the second row of VALUES": lambda session: session.execute(
        insert(Job).values(
            [{Job.kind: "k", Job.idempotency_key: None}, {Job.kind: "k", Job.idempotency_key: "x"}]
        )
    ),
    "ON CONFLICT": lambda session: session.execute(
        postgresql.insert(jobs).values(KEYED).on_conflict_do_nothing()
    ),
    "connection": lambda session: session.connection().execute(jobs.insert(), KEYED),
}
PLAIN: dict[str, tuple[int, Callable[[Session], object]]] = {
    "Job": (1, lambda session: session.execute(insert(Job), {"kind": "k"})),
    "many": (1000, lambda session: session.execute(insert(Job), [{"kind": "k"}] * 1000)),
    "no key": (1, lambda session: session.execute(insert(Job), {"kind": "k", "idempotency_key": None})),
    "table": (1, lambda session: session.execute(insert(jobs).values(kind="k"))),
    "VALUES": (2, lambda session: session.execute(insert(Job).values([{"kind": "k"}, {"kind": "k"}]))),
    "bound": (
        1,
        lambda session: session.connection().execute(insert(jobs).values(kind=bindparam("a")), {"a": "k"}),
    ),
    "SELECT": (
        1,
        lambda session: session.execute(insert(jobs).from_select(["kind"], select(literal("k").label("k")))),
    ),
    "CTE": (
        1,
        lambda session: session.execute(
            select(insert(jobs).values(kind="k").returning(jobs.c.id).cte("new").c.id)
        ).one(),
    ),
    "own cache": (
        1,
        lambda session: session.connection().execute(
            insert(jobs), {"kind": "k"}, execution_options={"compiled_cache": {}}
        ),
    ),
}


@pytest.mark.parametrize("call", BULK.values(), ids=BULK)
def test_the_bulk_methods_of_a_session_are_refused(
    call: Callable[[Session], object], client: Client, application: Engine
) -> None:
    """One sentence, with the line to write instead; nothing is sent, and no error shows what was in the job."""

    def work(session: Session) -> None:
        with statements(application) as seen, pytest.raises(EnqueueError) as caught:
            call(session)
        assert "session.add_all([enqueue(...), ...])" in str(caught.value)
        assert SECRET not in str(caught.value)
        assert [one for one in seen if one.startswith("INSERT")] == []
        session.rollback()  # as after every error of these methods
        session.add(enqueue("after"))

    client.run(work)
    assert rows(application, "kind") == ["after"]


@pytest.mark.parametrize("call", WITH_A_KEY.values(), ids=WITH_A_KEY)
def test_a_statement_with_a_key_is_refused_and_costs_nothing(
    call: Callable[[Session], object], client: Client, application: Engine
) -> None:
    """The caller's transaction goes on, with what it has done before and what it does after."""

    def work(session: Session) -> None:
        session.add(Document(title="before"))
        session.flush()
        with pytest.raises(EnqueueError, match=r"idempotency key would abort the transaction.*enqueue_many"):
            call(session)
        session.add(enqueue("after", idempotency_key="x"))

    client.run(work)
    assert rows(application, "kind") == ["after"]
    with Session(application) as session:
        assert session.scalars(select(Document.title)).all() == ["before"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_statement_without_a_key_works_as_ever(name: str, client: Client, application: Engine) -> None:
    """It is as good as SQL by hand: the table's own defaults."""
    count, call = PLAIN[name]

    def work(session: Session) -> None:
        call(session)

    client.run(work)
    assert rows(application, "kind", "settled_token", "status") == [("k", None, "ready")] * count


def test_the_librarys_own_insert_does_not_ask(application: Engine, session: Session) -> None:
    """Its text names no column for the sake of the check."""
    with statements(application) as seen:
        session.add_all([enqueue("k"), enqueue("k", idempotency_key="x")])
        session.flush()
        enqueue_many(session, [enqueue("k")])
    assert len(seen) == 2
    assert not [one for one in seen if "settled_token" in one]


def added(session: Session, job: Job) -> None:
    session.add(job)
    session.flush()


def test_the_metadata_can_still_be_pickled_and_copied() -> None:
    """Some keep it in a file, and some make the same tables in another schema."""
    read = pickle.loads(pickle.dumps(metadata))
    assert read.tables.keys() == metadata.tables.keys()
    copied = jobs.to_metadata(MetaData(), schema="elsewhere")
    assert copied.c.keys() == jobs.c.keys()


@pytest.mark.parametrize("form", [added, lambda session, job: enqueue_many(session, [job])])
def test_a_session_of_several_databases_that_knows_none_for_jobs(
    form: Callable[[Session, Job], object], application: Engine
) -> None:
    """The sentence names the argument, and the session can go on without the job."""
    with Session(binds={Document: application}) as session:
        session.add(Document(title="a"))
        session.flush()
        job = enqueue("k", idempotency_key="x")
        with pytest.raises(ConfigurationError, match=r"add Job to its binds: Session\(binds=\{Job: engine"):
            form(session, job)
        session.expunge_all()
        session.commit()
    with Session(application) as session:
        assert session.scalars(select(Document.title)).all() == ["a"]


def test_a_session_whose_jobs_are_bound_elsewhere(application: Engine, empty_database_url: str) -> None:
    """The tables are not in that database: the server's error says so, and where to bind the class."""
    elsewhere = create_engine(empty_database_url)
    try:
        with Session(binds={Document: application, Job: elsewhere}) as session:
            session.add(enqueue("k"))
            with pytest.raises(ProgrammingError, match=r"is missing .*Session\(binds=\{Job: engine"):
                session.flush()
    finally:
        elsewhere.dispose()


@pytest.mark.parametrize("autocommit", [None, -1, bool, False])
def test_what_other_drivers_call_autocommit_is_not_taken_for_it(
    autocommit: object,
) -> None:
    """A number with sqlite3 from Python 3.12 on, a method with MySQL: the dialect is what is wrong there."""
    connection = SimpleNamespace(connection=SimpleNamespace(dbapi_connection=SimpleNamespace()))
    if autocommit is not None:
        connection.connection.dbapi_connection.autocommit = autocommit
    assert not in_autocommit(connection)  # type: ignore[arg-type]
    connection.connection.dbapi_connection.autocommit = True
    assert in_autocommit(connection)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", [sqlite.dialect(), mysql.dialect(), oracle.dialect()])
def test_another_database_is_named(dialect: Dialect) -> None:
    """Before any SQL: a connection that can't send any is enough."""
    connection = SimpleNamespace(dialect=dialect)
    says = rf"jobs live in PostgreSQL, and this connection goes to {dialect.name}: bind the Job class"
    with pytest.raises(EnqueueError, match=says):
        insert_jobs(connection, [NewJob(kind="k", payload="{}")])  # type: ignore[arg-type]


def test_the_rows_of_one_statement_are_looked_at_once(
    application: Engine, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands in one VALUES list share their parameters, and each of them asks for the default."""
    looked: list[str] = []

    class Keys(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            looked.append(str(name))
            return super().__contains__(name)

    monkeypatch.setattr(direct_inserts, "_KEYS", Keys(direct_inserts._KEYS))
    session.execute(insert(Job).values([{Job.kind: "k", Job.priority: 3} for _ in range(500)]))
    session.commit()
    assert len(rows(application, "id")) == 500
    assert len(looked) == 1000


@pytest.mark.parametrize("table", [{}, {"__tablename__": "reports"}], ids=["same table", "table of its own"])
def test_no_class_inherits_from_job(table: dict[str, str]) -> None:
    """What it adds would be missing from the one INSERT there is."""
    with pytest.raises(ConfigurationError, match=r"Report can't inherit from Job.*foreign key"):
        type("Report", (Job,), table)
    assert list(Job.__mapper__.self_and_descendants) == [Job.__mapper__]
