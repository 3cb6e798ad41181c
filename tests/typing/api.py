"""What type checkers must see in the public API: checked by mypy and pyright, never executed.

A wrong call carries the ignores of both; when a checker stops flagging it, the unused ignore fails the check.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from sa_jobqueue import (
    Discard,
    Job,
    JobContext,
    Period,
    Registry,
    Retry,
    Settle,
    Snooze,
    delays,
    enqueue,
    exponential,
    fixed,
    never,
)
from sa_jobqueue.records import HandlerCall

jobs = Registry()


@jobs.handler("document.embed", queue="ai", retry=exponential(base=timedelta(seconds=10)))
def embed(ctx: JobContext, document_id: int, model: str = "m1") -> int:
    return document_id


@jobs.handler(
    "document.rename", retry=fixed(timedelta(seconds=1)), permanent=(ValueError,), aliases=["rename"]
)
def rename(document_id: int, *, title: str) -> Retry | Snooze | Discard | None:
    if not title:
        raise Settle(Discard("no title"))
    return Snooze(timedelta(minutes=5)) if document_id else Retry()


@jobs.handler("mail.send", retry=never(), timeout=timedelta(seconds=30))
async def send(ctx: JobContext, address: str) -> None: ...


def after_a_minute(attempt: int, error: BaseException) -> timedelta | None:
    return timedelta(minutes=1) if attempt < 3 else None


@jobs.handler("page.count", keep_result=True)
def count(ctx: JobContext, document_id: int) -> dict[str, int]:
    return {"pages": document_id}


def renamed(payload: Any) -> Any:
    return {"document_id": payload["id"]}


@jobs.handler(
    "document.index",
    unique_by=["document_id"],
    key_scope=Period(timedelta(hours=1)),
    on_conflict="replace",
    max_payload_bytes=1_000_000,
    payload_version=3,
    upcasters={1: renamed, 2: lambda payload: payload},
)
async def index(ctx: JobContext, document_id: int) -> None: ...


jobs.handler("k", key_scope="unfinished", on_conflict="raise")
jobs.handler("k", key_scope="ever")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
jobs.handler("k", on_conflict="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
jobs.handler("k", upcasters={"1": renamed})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
jobs.handler("k", max_payload_bytes="1M")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@jobs.handler("report.build", retry=after_a_minute, priority=0, timeout="never")
def build() -> None: ...


def right_calls(ctx: JobContext) -> None:
    assert_type(embed.call(document_id=7, model="m2"), HandlerCall)
    assert_type(embed.call(7), HandlerCall)
    assert_type(embed(ctx, document_id=7, model="m2"), int)
    assert_type(rename.call(7, title="t"), HandlerCall)
    assert_type(rename(7, title="t"), Retry | Snooze | Discard | None)
    assert_type(send.call(address="a@example.org"), HandlerCall)
    assert_type(count(ctx, document_id=7), dict[str, int])
    assert_type(count.keep_result, bool)
    assert_type(build.call(), HandlerCall)
    assert_type(build.is_async, bool)
    assert_type(enqueue(embed.call(document_id=7), idempotency_key="embed:7"), Job)


def wrong_calls(ctx: JobContext) -> None:
    embed.call(document_id="7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    embed.call()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    embed.call(7, modle="m1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    embed.call(ctx, 7, "m1")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    embed(document_id=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rename.call(7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    rename.call(7, "t")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    build.call(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    send.call(address=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong_settings() -> None:
    jobs.handler("a", retry=exponential)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("b", retry=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("c", permanent=(int,))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("d", max_attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("e", True)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    jobs.handler("f", timeout=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("g", timeout="30s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.handler("h", keep_result="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    exponential(base=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    delays([1, 2])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Snooze(300)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Settle("later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
