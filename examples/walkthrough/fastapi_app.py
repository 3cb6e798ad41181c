"""The FastAPI application: its runner inside the web process at first, then in a process of its own."""

from __future__ import annotations

import httpx

from examples.documents.demo.trouble import expect
from examples.walkthrough.stage import Stage

FOLDER = "examples/fastapi_app"
READ = "examples/fastapi_app/app.py and jobs.py"
SERVER = ("uvicorn", "examples.fastapi_app.app:app", "--log-level", "warning")
RUNNER = ("sa_jobqueue", "run", "examples.fastapi_app.jobs:jobs", "--burst")


def tell(stage: Stage) -> None:
    """A refused order, one that is done in the web process, one that waits for another process."""
    with stage.server(*SERVER) as client:
        stage.ask(client, "POST", "/orders", email="ada@example.org", quantity=1000, expected=409)
        stage.count(orders=0, jobs=0)
        placed = stage.ask(client, "POST", "/orders", email="ada@example.org", quantity=2, expected=202)
        stage.count(orders=1, jobs=1)
        job = stage.ask(client, "GET", f"/jobs/{placed['job_id']}?wait=30", expected=200)
        expect(job["status"] == "done", "the runner in the web process should have done it")
        show_receipt(stage, client, placed["order_id"], "2 for ada@example.org")
    with stage.server(*SERVER, EMBEDDED_RUNNER="no") as client:
        placed = stage.ask(client, "POST", "/orders", email="bob@example.org", quantity=3, expected=202)
        job = stage.ask(client, "GET", f"/jobs/{placed['job_id']}", expected=200)
        expect(job["status"] == "ready", "nobody should have done it yet")
        stage.run(*RUNNER)
        job = stage.ask(client, "GET", f"/jobs/{placed['job_id']}", expected=200)
        expect(job["status"] == "done", "the runner should have done it")
        show_receipt(stage, client, placed["order_id"], "3 for bob@example.org")


def show_receipt(stage: Stage, client: httpx.Client, order_id: int, receipt: str) -> None:
    """The order as the application tells it; what the handler wrote has to be there."""
    order = stage.ask(client, "GET", f"/orders/{order_id}", expected=200)
    expect(order["receipt"] == receipt, "the receipt should be there")
