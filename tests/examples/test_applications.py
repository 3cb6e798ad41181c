"""The small applications of examples/ on a test's own database: the rollback first, then the commit, then the answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine, MetaData, create_engine, make_url, text
from sqlalchemy.orm import Session

from examples.fastapi_app import app as web
from examples.fastapi_app import jobs as web_jobs
from examples.fastapi_app import models as web_models
from examples.flask_app import jobs as flask_jobs
from examples.flask_app.app import create_app
from examples.flask_app.models import db
from examples.script import orders as script
from sa_jobqueue.testing import assert_enqueued
from tests.support import forked
from tests.support.runners import drain
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("fastapi_app", "flask_app", "script")
TOO_MANY = {"email": "ada@example.org", "quantity": 1000}
SOME = {"email": "ada@example.org", "quantity": 2}
RECEIPT = {"quantity": 2, "receipt": "2 for ada@example.org"}


def url_of(engine: Engine, driver: str = "postgresql+psycopg") -> str:
    """The URL as an application is given it; asyncpg takes the folder of the socket as `host`, as psycopg does."""
    return make_url(engine.url).set(drivername=driver).render_as_string(hide_password=False)


def committed(engine: Engine) -> tuple[int, int]:
    """How many orders and how many jobs everybody sees."""
    counts = text("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM jobqueue_jobs)")
    with engine.connect() as connection:
        orders, jobs = connection.execute(counts).one()
    return orders, jobs


def tables(engine: Engine, metadata: MetaData) -> None:
    metadata.create_all(engine)


# FastAPI


@asynccontextmanager
async def requests() -> AsyncIterator[httpx.AsyncClient]:
    """Who makes requests to the application while it is up, on the event loop that the application runs on."""
    transport = httpx.ASGITransport(web.app)
    failure: BaseException | None = None
    async with (
        web.app.router.lifespan_context(web.app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        # As with a server, the application knows nothing of what fails at a client, and goes down in order.
        try:
            yield client
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


@pytest.fixture(params=["postgresql+psycopg", "postgresql+asyncpg"])
def fastapi_database(
    engine: Engine, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Engine:
    """Its tables and the queue's, and a URL with each of the two drivers in the environment."""
    tables(engine, web_models.Base.metadata)
    monkeypatch.setenv("DATABASE_URL", url_of(engine, request.param))
    return engine


def test_fastapi_rolls_back_the_order_with_its_job(
    fastapi_database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is refused after both were flushed leaves neither, and the next one finds a sound session."""
    monkeypatch.setenv("EMBEDDED_RUNNER", "no")

    async def story() -> None:
        async with requests() as client:
            assert (await client.post("/orders", json=TOO_MANY)).status_code == 409
            assert committed(fastapi_database) == (0, 0)
            assert (await client.post("/orders", json=SOME)).status_code == 202
            assert committed(fastapi_database) == (1, 1)

    asyncio.run(story())


def test_fastapi_with_its_runner_inside(fastapi_database: Engine) -> None:
    """What is accepted is done in the web process, and whoever waits is told so."""

    async def story() -> None:
        async with requests() as client:
            answer = await client.post("/orders", json=SOME)
            assert answer.status_code == 202
            placed = answer.json()
            assert (await client.get(f"/jobs/{placed['job_id']}?wait=30")).json() == {"status": "done"}
            assert (await client.get(f"/orders/{placed['order_id']}")).json() == RECEIPT

    asyncio.run(story())


def test_fastapi_with_a_runner_elsewhere(fastapi_database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a runner inside nothing is done until another process runs the same registry."""
    monkeypatch.setenv("EMBEDDED_RUNNER", "no")

    async def story() -> None:
        async with requests() as client:
            placed = (await client.post("/orders", json=SOME)).json()
            with Session(fastapi_database) as session:
                assert_enqueued(session, web_jobs.send_receipt, {"order_id": placed["order_id"]}, count=1)
            assert (await client.get(f"/jobs/{placed['job_id']}")).json() == {"status": "ready"}
            await asyncio.to_thread(drain, web_jobs.jobs, url_of(fastapi_database))
            assert (await client.get(f"/jobs/{placed['job_id']}")).json() == {"status": "done"}
            assert (await client.get(f"/orders/{placed['order_id']}")).json() == RECEIPT

    asyncio.run(story())


def test_fastapi_says_what_there_is_not(fastapi_database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order or a job that never was is a 404, and a wait that is too long for a request a 422."""
    monkeypatch.setenv("EMBEDDED_RUNNER", "no")

    async def story() -> None:
        async with requests() as client:
            assert (await client.get("/jobs/7")).status_code == 404
            assert (await client.get("/orders/7")).status_code == 404
            assert (await client.get("/jobs/7?wait=31")).status_code == 422
            assert (await client.get("/jobs/7?wait=-1")).status_code == 422

    asyncio.run(story())


# Flask


@pytest.fixture
def flask_client(engine: Engine) -> Iterator[FlaskClient]:
    """Who makes requests to the application on a database with its tables and the queue's."""
    app = create_app(url_of(engine))
    with app.app_context():
        db.create_all()
    yield app.test_client()
    with app.app_context():
        db.engine.dispose()


def test_flask_rolls_back_the_order_with_its_job(engine: Engine, flask_client: FlaskClient) -> None:
    """A request that is refused after both were flushed leaves neither, and the next one finds a sound session."""
    assert flask_client.post("/orders", json=TOO_MANY).status_code == 409
    assert committed(engine) == (0, 0)
    assert flask_client.post("/orders", json=SOME).status_code == 202
    assert committed(engine) == (1, 1)


def test_flask_with_a_runner_elsewhere(engine: Engine, flask_client: FlaskClient) -> None:
    """The answer names where to ask for the job; it is done when a runner has been there."""
    answer = flask_client.post("/orders", json=SOME)
    order_id, where = answer.get_json()["order_id"], answer.headers["Location"]
    with Session(engine) as session:
        assert_enqueued(session, flask_jobs.send_receipt, {"order_id": order_id}, count=1)
    assert flask_client.get(where).get_json() == {"status": "ready", "reason": None}
    drain(flask_jobs.jobs, url_of(engine))
    assert flask_client.get(where).get_json() == {"status": "done", "reason": None}
    assert flask_client.get(f"/orders/{order_id}").get_json() == RECEIPT


def test_flask_says_what_there_is_not(flask_client: FlaskClient) -> None:
    """An order or a job that never was is a 404."""
    assert flask_client.get("/jobs/7").status_code == 404
    assert flask_client.get("/orders/7").status_code == 404


# The script


def test_the_script_tells_all_three(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both rows are gone with the rollback, both there with the commit, and the job done by the runner inside."""
    tables(engine, script.Base.metadata)
    monkeypatch.setenv("DATABASE_URL", url_of(engine))
    assert script.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "before the rollback: orders: 1, jobs: 1",
        "after the rollback: orders: 0, jobs: 0",
        "after the commit: orders: 1, jobs: 1",
        "job 2: done; receipt: 2 for ada@example.org",
    ]
    assert committed(engine) == (1, 1)


# All three


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_is_short_enough_to_be_read_at_once(folder: str) -> None:
    """All of its own Python, but for the migrations, is 60 to 100 lines."""
    files = list((ROOT / "examples" / folder).glob("*.py"))
    assert 60 <= sum(len(file.read_text().splitlines()) for file in files) <= 100


@pytest.mark.parametrize("folder", FOLDERS)
def test_its_history_is_what_its_models_say(folder: str, empty_database_url: str) -> None:
    """`alembic upgrade head` from the root of the repository, then `alembic check`, then all of it away again."""

    def alembic(*words: str) -> str:
        line = ["alembic", "-c", f"examples/{folder}/alembic.ini", *words]
        environment = {**os.environ, "DATABASE_URL": empty_database_url}
        done = forked.run(line, cwd=ROOT, env=environment, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alembic("upgrade", "head")
    assert "No new upgrade operations detected" in alembic("check")
    alembic("downgrade", "base")
    engine = create_engine(empty_database_url)
    with engine.connect() as connection:
        left = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        assert list(left) == ["alembic_version"]
    engine.dispose()
