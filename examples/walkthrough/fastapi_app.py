"""The FastAPI application: its runner inside the web process at first, then in a process of its own."""

from __future__ import annotations

from examples.documents.demo.trouble import expect
from examples.walkthrough.orders import done_apart, refused_then_placed, show_receipt
from examples.walkthrough.stage import Stage

FOLDER = "examples/fastapi_app"
READ = "examples/fastapi_app/app.py and jobs.py"
SERVER = ("uvicorn", "examples.fastapi_app.app:app", "--log-level", "warning")
RUNNER = ("sa_jobqueue", "run", "examples.fastapi_app.jobs:jobs", "--burst")


def tell(stage: Stage) -> None:
    """A refused order, one that is done in the web process, one that waits for another process."""
    with stage.server(*SERVER) as client:
        placed = refused_then_placed(stage, client)
        job = stage.ask(client, "GET", f"/jobs/{placed['job_id']}?wait=30", expected=200)
        expect(job["status"] == "done", "the runner in the web process should have done it")
        show_receipt(stage, client, placed["order_id"], "2 for ada@example.org")
    with stage.server(*SERVER, EMBEDDED_RUNNER="no") as client:
        placed = stage.ask(client, "POST", "/orders", email="bob@example.org", quantity=3, expected=202)
        done_apart(stage, client, placed["job_id"], RUNNER)
        show_receipt(stage, client, placed["order_id"], "3 for bob@example.org")
