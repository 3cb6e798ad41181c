"""The pytest plugin as it is loaded where the package is installed: in everybody's runs, so it must weigh nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent, indent

import pytest

import sa_jobqueue.testing
from sa_jobqueue.testing import PostgresServer
from sa_jobqueue.testing.postgres import SOURCE_VARIABLE, URL_VARIABLE
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
SHOP = """
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

    from sa_jobqueue import Registry, enqueue, ref

    jobs = Registry()
    make_session = sessionmaker()


    class Base(DeclarativeBase):
        pass


    class Order(Base):
        __tablename__ = "orders"

        id: Mapped[int] = mapped_column(primary_key=True)
        email: Mapped[str]
        receipt: Mapped[str | None]


    @jobs.handler("order.send_receipt")
    def send_receipt(order_id: int) -> None:
        with make_session() as session, session.begin():
            order = session.get_one(Order, order_id)
            order.receipt = f"receipt for {order.email}"


    def place_order(session: Session, email: str) -> Order:
        order = Order(email=email)
        job = enqueue(send_receipt.call(order_id=ref(order)), idempotency_key=f"receipt:{email}")
        session.add_all([order, job])
        session.commit()
        return order
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder on the path in which pytest finds the package's entry points, as an installation leaves them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    folder = tmp_path / "site" / "sa_jobqueue-0.dist-info"
    folder.mkdir(parents=True)
    points = "\n".join(f"{name} = {where}" for name, where in project["entry-points"]["pytest11"].items())
    (folder / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sa-jobqueue\nVersion: 0\n")
    (folder / "RECORD").write_text("_sa_jobqueue_pytest.py,,\nsa_jobqueue/__init__.py,,\n")
    for source, target in wheel["force-include"].items():
        shutil.copyfile(ROOT / source, folder.parent / target)
    return folder.parent


def run(
    folder: Path, installed: Path, *options: str, server: str | None = None, **files: str
) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, warnings as errors, over these files; with a server of its own if none is named."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    if server is not None:
        environment = {name: value for name, value in environment.items() if name != SOURCE_VARIABLE}
        environment[URL_VARIABLE] = server
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment | {"PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


def test_the_plugin_is_loaded_and_imports_nothing(tmp_path: Path, installed: Path) -> None:
    """Whoever has the package installed pays for one small module, and sees neither an option nor a warning."""
    test = """
        import sys

        def test_it(pytestconfig):
            assert "_sa_jobqueue_pytest" in sys.modules
            assert pytestconfig.pluginmanager.has_plugin("sa_jobqueue")
            heavy = [name for name in sys.modules if name.split(".")[0] in ("sa_jobqueue", "sqlalchemy", "psycopg")]
            assert heavy == []
    """
    ran = run(tmp_path, installed, test_it=test)
    assert ran.returncode == 0, ran.stdout
    assert "warning" not in ran.stdout
    listed = run(tmp_path, installed, "--fixtures")
    assert re.search(r"jobqueue_database_url \[session scope\].*\n    The URL \(psycopg\)", listed.stdout)


def test_the_plugin_can_be_left_out(tmp_path: Path, installed: Path) -> None:
    """As any other: its fixture is gone then, and nothing else."""
    test = """
        import sys

        def test_without():
            assert "_sa_jobqueue_pytest" not in sys.modules

        def test_with(jobqueue_database_url):
            pass
    """
    ran = run(tmp_path, installed, "-p", "no:sa_jobqueue", test_it=test)
    assert "1 passed, 1 error" in ran.stdout
    assert "fixture 'jobqueue_database_url' not found" in ran.stdout


def test_the_example_of_the_package_works_as_it_is_written(tmp_path: Path, installed: Path) -> None:
    """Fixtures and test are taken from the docstring; a second test finds nothing of the first one's."""
    example = re.search(
        r"\n    # conftest\.py\n(.*?)\n    # test_shop\.py\n(.*?)\n\n\S",
        str(sa_jobqueue.testing.__doc__),
        re.DOTALL,
    )
    assert example
    conftest, test = example.groups()
    again = """
        from sqlalchemy import func, select
        from sa_jobqueue import Job
        from shop import Order

        def test_nothing_is_left(session):
            assert session.scalar(select(func.count()).select_from(Order)) == 0
            assert session.scalar(select(func.count()).select_from(Job)) == 0
    """
    ran = run(tmp_path, installed, shop=SHOP, conftest=conftest, test_shop=test, test_then=again)
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


def test_a_failure_shows_the_line_of_the_test_and_none_of_ours(
    tmp_path: Path, installed: Path, server: PostgresServer
) -> None:
    """The traceback ends where the person wrote assert_enqueued(); the message follows."""
    test = """
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        import sa_jobqueue
        from sa_jobqueue.testing import assert_enqueued

        def test_it(jobqueue_database_url):
            engine = create_engine(jobqueue_database_url)
            with Session(engine) as session:
                sa_jobqueue.metadata.create_all(session.connection())
                session.add(sa_jobqueue.enqueue("mail.send", {"to": 8}))
                assert_enqueued(session, "mail.send", {"to": 7})
    """
    ran = run(tmp_path, installed, server=server.url(), test_it=test)
    assert ran.returncode == 1
    expected = """
        E           AssertionError: expected such a job, found none
        E             looked for:
        E               kind     'mail.send'
        E               payload  {'to': 7}
        E               status   ready
        E             the others, the nearest first:
        E               job 1 'mail.send': payload['to'] is 8, not 7

        test_it.py:13: AssertionError
    """
    assert indent(dedent(expected), "").strip() in ran.stdout
    assert "_enqueued.py" not in ran.stdout
