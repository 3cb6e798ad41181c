"""What the stories of the web applications have in common: an order, its job and its receipt, asked for by HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.documents.demo.trouble import expect

if TYPE_CHECKING:
    import httpx

    from examples.walkthrough.stage import Stage


def refused_then_placed(stage: Stage, client: httpx.Client) -> Any:
    """An order that is rolled back with its job, and one that is committed with it: the answer to that."""
    stage.ask(client, "POST", "/orders", email="ada@example.org", quantity=1000, expected=409)
    stage.count(orders=0, jobs=0)
    placed = stage.ask(client, "POST", "/orders", email="ada@example.org", quantity=2, expected=202)
    stage.count(orders=1, jobs=1)
    return placed


def done_apart(stage: Stage, client: httpx.Client, job_id: int, runner: tuple[str, ...]) -> None:
    """A job that waits, until a runner in a process of its own has done it."""
    job = stage.ask(client, "GET", f"/jobs/{job_id}", expected=200)
    expect(job["status"] == "ready", "nobody should have done it yet")
    stage.run(*runner)
    job = stage.ask(client, "GET", f"/jobs/{job_id}", expected=200)
    expect(job["status"] == "done", "the runner should have done it")


def show_receipt(stage: Stage, client: httpx.Client, order_id: int, receipt: str) -> None:
    """The order as the application tells it; what the handler wrote has to be there."""
    order = stage.ask(client, "GET", f"/orders/{order_id}", expected=200)
    expect(order["receipt"] == receipt, "the receipt should be there")
