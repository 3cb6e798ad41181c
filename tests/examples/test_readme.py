"""README.md, as its reader would use it: the files are written, the commands run, the snippets executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import sa_jobqueue
from sa_jobqueue import Job, Registry
from sa_jobqueue.cli.run import run
from sa_jobqueue.states import diagram

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```", re.M | re.S)
BLOCKS = [match.groupdict() for match in BLOCK.finditer(README)]

ALEMBIC_INI = "[alembic]\nscript_location = %(here)s/migrations\n"
ENV_PY = """
import os
from alembic import context
from sqlalchemy import create_engine
import sa_jobqueue
from shop.jobs import Base

with create_engine(os.environ["DATABASE_URL"]).connect() as connection:
    context.configure(connection=connection, target_metadata=[Base.metadata, sa_jobqueue.metadata])
    with context.begin_transaction():
        context.run_migrations()
"""


def _marked(prefix: str) -> list[dict[str, str]]:
    return [block for block in BLOCKS if (block["mark"] or "").startswith(prefix)]


def test_the_quickstart_works_as_written(tmp_path: Path, empty_database_url: str) -> None:
    """Every file and every command of the first ten minutes, in order, with the output that is shown."""
    for block in _marked("file: "):
        path = tmp_path / block["mark"].removeprefix("file: ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["code"])
    (tmp_path / "alembic.ini").write_text(ALEMBIC_INI)
    (tmp_path / "migrations" / "env.py").write_text(ENV_PY)
    environment = {
        **os.environ,
        "DATABASE_URL": empty_database_url,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    (console,) = _marked("run")
    for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", console["code"], re.M):
        if command.startswith(("pip ", "export ")):  # the environment of the tests has both
            continue
        program, *arguments = command.split()
        modules = {"alembic": "alembic", "sa-jobqueue": "sa_jobqueue"}
        line = (
            [sys.executable, *arguments]
            if program == "python"
            else [sys.executable, "-m", modules[program], *arguments]
        )
        done = subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
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


def test_the_diagram_is_the_one_of_the_code() -> None:
    """The life of a job in README is made from the table of transitions."""
    (block,) = _marked("diagram")
    assert block["code"].strip() == diagram()


class Base(DeclarativeBase):
    """The application of the snippets."""


class Document(Base):
    __tablename__ = "documents"

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey(Job.__table__.c.id))
    job: Mapped[Job | None] = relationship(Job)


def _snippets() -> list[str]:
    return [block["code"] for block in BLOCKS if block["language"] == "python" and not block["mark"]]


def test_the_snippets_run(engine: Engine) -> None:
    """Every other piece of Python in README does what it says on a real database."""
    Base.metadata.create_all(engine, tables=[Document.__table__])  # type: ignore[list-item]
    jobs = Registry()

    @jobs.handler("order.send_receipt")
    def send_receipt(order_id: int) -> None: ...

    assert len(_snippets()) == 2
    with Session(engine) as session:
        document = Document(id=1)
        session.add(document)
        names: dict[str, Any] = {name: getattr(sa_jobqueue, name) for name in sa_jobqueue.__all__}
        names |= {
            "connection": session.connection(),
            "document": document,
            "jobs": jobs,
            "send_receipt": send_receipt,
            "session": session,
            "timedelta": timedelta,
        }
        for snippet in _snippets():
            exec(compile(snippet, "README.md", "exec", dont_inherit=True), names)
        session.commit()
        count = session.execute(text("SELECT count(*) FROM jobqueue_jobs")).scalar_one()
        assert count == 100_004
        assert document.job_id is not None
    assert names["embed"].call(document_id=7).payload == {"document_id": 7}


@pytest.mark.parametrize("option", sorted(set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", README))))
def test_every_option_named_exists(option: str) -> None:
    """README names no option that the command doesn't have."""
    known = {name for parameter in run.params for name in parameter.opts} | {"--help"}
    assert option in known | {"--sql"}
