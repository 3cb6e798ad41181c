"""README.md, as its reader would use it: the files are written, the commands run, the snippets executed."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import pytest
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, ForeignKey, create_engine, delete, insert, make_url, text, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import sa_jobqueue
import sa_jobqueue.admin
import sa_jobqueue.testing
from examples.walkthrough.__main__ import STORIES
from sa_jobqueue import Enqueued, Job, JobContext, Registry, enqueue, enqueue_many, never
from sa_jobqueue.admin import redrive
from sa_jobqueue.cli import cli
from sa_jobqueue.database import normalise_url
from sa_jobqueue.migrations import LATEST, migrate_jobqueue
from sa_jobqueue.runner import Runner, RunnerSettings
from sa_jobqueue.states import diagram
from tests.support.databases import new_name
from tests.support.runners import running

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```", re.M | re.S)
BLOCKS = [match.groupdict() for match in BLOCK.finditer(README)]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _marked(prefix: str) -> list[dict[str, str]]:
    return [block for block in BLOCKS if (block["mark"] or "").startswith(prefix)]


def _commands() -> list[tuple[str, str]]:
    """The commands of the first ten minutes, each with the output that is shown."""
    (console,) = _marked("run")
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", console["code"], re.M)


def test_the_session_that_holds_vacuum_back_is_found(engine: Engine) -> None:
    """The one query names it first, prepared transactions too."""
    (block,) = _marked("horizon")
    with engine.connect() as somebody, engine.connect() as other:
        somebody.execution_options(isolation_level="REPEATABLE READ")
        pid = somebody.execute(
            text("SELECT pg_backend_pid() FROM jobqueue_jobs RIGHT JOIN (VALUES (1)) AS one ON true")
        ).scalar()
        prepared = other.begin_twophase(f"horizon {pid}")
        other.execute(text("INSERT INTO jobqueue_jobs (kind) VALUES ('test')"))
        prepared.prepare()
        with engine.connect() as operator:
            holders = {row.holder: row for row in operator.execute(text(block["code"]))}
        prepared.rollback()
    # Or as old as the first: an autovacuum may have begun at the same moment.
    assert holders[f"session {pid}"].transactions == next(iter(holders.values())).transactions
    assert holders[f"session {pid}"].query.startswith("SELECT pg_backend_pid()")
    assert f"prepared transaction horizon {pid}" in holders


def test_the_quickstart_works_as_written(tmp_path: Path, empty_database_url: str) -> None:
    """Every file and every command of the first ten minutes, in order, with the output that is shown; nothing else."""
    for block in _marked("file: "):
        path = tmp_path / block["mark"].removeprefix("file: ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["code"])
    environment = {**os.environ, "DATABASE_URL": empty_database_url, "PYTHONPATH": str(ROOT)}
    # With -P a module is like an installed command: it doesn't find what lies in the current folder by itself.
    programs = {
        "alembic": ["-P", "-m", "alembic"],
        "python": [],
        "sa-jobqueue": ["-P", "-m", "sa_jobqueue"],
    }
    for command, expected in _commands():
        program, *arguments = command.split()
        if program in ("pip", "createdb", "export"):  # the environment of the tests has all three
            continue
        done = subprocess.run(
            [sys.executable, *programs[program], *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout.endswith(expected), command
    engine = create_engine(empty_database_url)
    with engine.connect() as connection:
        receipts = connection.execute(text("SELECT receipt FROM orders")).scalars().all()
        statuses = connection.execute(text("SELECT status FROM jobqueue_jobs")).scalars().all()
    engine.dispose()
    assert receipts == ["receipt for ada@example.org, attempt 1"]
    assert statuses == ["done"]


def test_the_quickstart_is_counted_right() -> None:
    """Files and commands are as many as the first sentence says; the extra to install exists, the URL can be read."""
    counts = f"{NUMBERS[len(_marked('file: '))].capitalize()} files and {NUMBERS[len(_commands())]} commands"
    assert counts in README
    commands = "\n".join(command for command, _ in _commands())
    (extra,) = re.findall(r"pip install .*\[(\w+)\]", commands)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]
    (url,) = re.findall(r"export DATABASE_URL=(\S+)", commands)
    (database,) = re.findall(r"createdb (\w+)", commands)
    assert make_url(url).database == normalise_url(url).database == database


def _lines(code: str) -> list[str]:
    return [line.strip() for line in code.strip().splitlines()]


@pytest.mark.parametrize("block", _marked("excerpt: "), ids=lambda block: block["mark"])
def test_the_excerpts_are_in_the_applications(block: dict[str, str]) -> None:
    """What README shows of an application is written there, in this order; `...` stands for what is left out."""
    rest = _lines((ROOT / block["mark"].removeprefix("excerpt: ")).read_text())
    for piece in map(_lines, block["code"].split("...\n")):
        starts = [start for start in range(len(rest)) if rest[start : start + len(piece)] == piece]
        assert starts, "\n".join(piece)
        rest = rest[starts[0] + len(piece) :]


def test_every_application_is_shown() -> None:
    """For each that has a command there is the command and an excerpt."""
    folders = {story.FOLDER for story in STORIES.values()}
    assert {block["mark"].split()[1].rpartition("/")[0] for block in _marked("excerpt: ")} == folders
    assert set(re.findall(r"^    python3 examples (\w+) ", README, re.M)) == set(STORIES)


def test_the_diagram_is_the_one_of_the_code() -> None:
    """The life of a job in README is made from the table of transitions."""
    (block,) = _marked("diagram")
    assert block["code"].strip() == diagram()


def test_the_calls_of_people_are_all_named() -> None:
    """README names every call of `sa_jobqueue.admin`, and each is there."""
    (paragraph,) = re.findall(r"^The same from code, .*?\n\n", README, re.M | re.S)
    calls = {
        name for name in sa_jobqueue.admin.__all__ if inspect.isfunction(getattr(sa_jobqueue.admin, name))
    }
    assert set(re.findall(r"`(\w+)`", paragraph)) | {"count_prunable"} == calls


def test_autogenerate_proposes_the_table_until_the_line_has_run(empty_database_url: str) -> None:
    """Why README says to write the line first, and that the proposal is no substitute."""
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        proposal = produce_migrations(context, sa_jobqueue.metadata)
        upgrade = render_python_code(proposal.upgrade_ops)
        assert "create_table('jobqueue_jobs'" in upgrade
        assert "autovacuum" not in upgrade
        migrate_jobqueue(Operations(context), 0, LATEST)
        assert compare_metadata(MigrationContext.configure(connection), sa_jobqueue.metadata) == []
    engine.dispose()


class Base(DeclarativeBase):
    """The application of the snippets."""


class Document(Base):
    __tablename__ = "documents"

    id: Mapped[int] = mapped_column(primary_key=True)
    indexed: Mapped[bool] = mapped_column(default=False)
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))
    job: Mapped[Job | None] = relationship(Job)


class Mailer:
    """What its registry provides."""

    def __init__(self, host: str) -> None:
        self.host = host


def _snippets() -> list[str]:
    return [block["code"] for block in BLOCKS if block["language"] == "python" and not block["mark"]]


def test_the_snippets_run(engine: Engine) -> None:
    """Every other piece of Python in README does what it says on a real database."""
    Base.metadata.create_all(engine, tables=[Document.__table__])  # type: ignore[list-item]
    elsewhere = Registry()

    @elsewhere.handler("order.send_receipt")
    def send_receipt(order_id: int) -> None: ...

    @elsewhere.handler("document.embed", queue="ai", max_attempts=8)
    def embed(document_id: int, model: str = "m1") -> None: ...

    assert len(_snippets()) == 8
    with Session(engine) as session:
        document = Document(id=1)
        session.add(document)
        names: dict[str, Any] = {name: getattr(sa_jobqueue, name) for name in sa_jobqueue.__all__}
        names |= {
            "connection": session.connection(),
            "dataclass": dataclass,
            "datetime": datetime,
            "Decimal": Decimal,
            "Mailer": Mailer,
            "UUID": UUID,
            "create_async_engine": create_async_engine,
            "create_engine": create_engine,
            "document": document,
            "Document": Document,
            "embed": embed,
            "engine": engine,
            "jobs": Registry(),
            "send_receipt": send_receipt,
            "Session": Session,
            "session": session,
            "timedelta": timedelta,
        }
        for snippet in _snippets():
            fewer = snippet.replace("100_000", "5_001")  # still more than one statement takes
            exec(compile(fewer, "README.md", "exec", dont_inherit=True), names)
        session.commit()
        assert document.job_id is not None
    assert _jobs(engine) == [("default", 5, 5_004), ("ai", 8, 3)]
    with running(names["jobs"], engine.url, queues={"web": 1, "default": 1}):
        assert names["pages_of"](document_id=1) == 12
        with Session(engine) as session, session.begin():
            session.add(indexing := enqueue(names["index"].call(document_id=1), priority=0))
        assert indexing.enqueued is not None
        answer = sa_jobqueue.wait_for(engine, indexing.enqueued.id, timeout=timedelta(minutes=1))
        assert (answer.done, answer.result) == (True, {"pages": 12})
    assert ("ai", 8, 4) in _jobs(engine)  # its follow-up
    with Session(engine) as session:
        assert session.get_one(Document, 1).indexed
    assert names["embed"].call(document_id=7).payload == {"document_id": 7}
    first, second = (enqueue(names["export"].call(document_id=7, pages=pages)) for pages in ([1], [1, 2]))
    assert first.idempotency_key == second.idempotency_key is not None
    lines = [names["Line"](UUID(int=7), Decimal("1.50"))]
    shipping = names["ship"].call(order_id=7, lines=lines, at=datetime(2026, 11, 30, tzinfo=UTC))
    assert shipping.payload == {
        "order_id": 7,
        "lines": [{"article": str(UUID(int=7)), "price": "1.50"}],
        "at": "2026-11-30T00:00:00+00:00",
    }
    assert sa_jobqueue.testing.perform(shipping).status == "done"


def _jobs(engine: Engine) -> list[tuple[str, int, int]]:
    with engine.connect() as connection:
        rows = connection.execute(
            text("SELECT queue, max_attempts, count(*) FROM jobqueue_jobs GROUP BY 1, 2 ORDER BY 3 DESC")
        )
        return [(row[0], row[1], row[2]) for row in rows]


def test_the_fields_of_the_context_are_all_named() -> None:
    """A handler's author reads in README what `ctx` has."""
    (paragraph,) = re.findall(r"^`ctx` has .*?\n\n", README, re.M | re.S)
    fields = {name for name in dir(JobContext) if not name.startswith("_")} - {
        "mark_cancel_requested",
        "mark_lost",
        "show_payload",
    }
    assert set(re.findall(r"`(\w+)(?:\(\))?`", paragraph)) - {"ctx", "attempts", "returned"} == fields


@pytest.mark.parametrize("value", [datetime(2024, 1, 1, tzinfo=UTC), UUID(int=7)])
def test_by_name_dates_and_uuids_are_refused_as_said(value: object) -> None:
    """Without a handler nobody would read them back."""
    with pytest.raises(TypeError, match="no JSON type"):
        enqueue("order.send_receipt", {"order_id": value})


def test_what_goes_past_the_refusals_is_named(engine: Engine) -> None:
    """README doesn't promise more than the unit of work can hold: these statements do go through."""
    with Session(engine) as session:
        session.add(enqueue("order.send_receipt"))
        session.flush()
        session.execute(update(Job).values(priority=9))
        session.execute(insert(Job), [{"kind": "order.send_receipt"}])
        assert session.execute(text("SELECT count(*) FROM jobqueue_jobs")).scalar_one() == 2
        session.execute(delete(Job))
        assert session.execute(text("SELECT count(*) FROM jobqueue_jobs")).scalar_one() == 0


def test_the_rights_named_are_enough(engine: Engine) -> None:
    """A role with SELECT and INSERT enqueues, keyed and not; with UPDATE it replaces, runs, rescues and redrives."""
    jobs = Registry()
    jobs.handler("order.send_receipt", retry=never())(lambda: 1 / 0)
    producer, runner = new_name(), new_name()
    with engine.begin() as connection:
        for role, right in ((producer, "INSERT"), (runner, "UPDATE")):
            connection.execute(text(f"CREATE ROLE {role}"))
            connection.execute(text(f"GRANT SELECT, {right} ON jobqueue_jobs TO {role}"))
    try:
        with Session(engine) as session, session.begin():
            session.execute(text(f"SET LOCAL ROLE {producer}"))
            session.add(job := enqueue("order.send_receipt", idempotency_key="a"))
            session.flush()
            session.add(again := enqueue("order.send_receipt", idempotency_key="a"))
            session.flush()
            assert job.enqueued is not None
            assert again.enqueued == Enqueued(job.enqueued.id, "existing")
        url = engine.url.update_query_dict({"options": f"-crole={runner}"})
        assert Runner(jobs, url, RunnerSettings(burst=True)).run(handle_signals=False) == 0
        with Session(engine) as session, session.begin():
            session.execute(text(f"SET LOCAL ROLE {runner}"))
            assert [answer.landed for answer in redrive(session, [job.enqueued.id])] == [True]
        with Session(engine) as session, session.begin():
            session.execute(text(f"GRANT UPDATE ON jobqueue_jobs TO {producer}"))
            session.execute(text(f"SET LOCAL ROLE {producer}"))
            new = enqueue("order.send_receipt", idempotency_key="a", on_conflict="replace")
            assert enqueue_many(session, [new]) == [Enqueued(job.enqueued.id, "replaced")]
    finally:
        with engine.begin() as connection:
            for role in (producer, runner):
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))


def _all_commands(command: click.Command) -> list[click.Command]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(one for child in below for one in _all_commands(child))]


@pytest.mark.parametrize("option", sorted(set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", README))))
def test_every_option_named_exists(option: str) -> None:
    """README names no option that no command has."""
    known = {
        name for command in _all_commands(cli) for parameter in command.params for name in parameter.opts
    }
    known |= {"--help"}
    assert option in known | {"--autogenerate"}
