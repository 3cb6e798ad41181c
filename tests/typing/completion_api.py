"""What type checkers must see of `ctx.complete()`: checked by mypy and pyright, never executed.

A wrong call carries the ignores of both; when a checker stops flagging it, the unused ignore fails the check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

if TYPE_CHECKING:
    from sa_jobqueue import JobContext


class MySession(Session):
    """An application's own."""


class MyAsyncSession(AsyncSession):
    """And its async one."""


makes = sessionmaker(class_=MySession)
makes_async = async_sessionmaker(class_=MyAsyncSession)


def handler(ctx: JobContext) -> None:
    with ctx.complete(result={"pages": 3}) as session:
        assert_type(session, Session)
    with ctx.complete(makes) as mine:
        assert_type(mine, MySession)
    with ctx.complete(scoped_session(makes)) as scoped:
        assert_type(scoped, MySession)
    with ctx.complete(lambda: MySession()) as made:
        assert_type(made, MySession)
    with MySession() as open_session:
        ctx.complete_in(open_session, result=[1])
        ctx.complete_in(scoped_session(makes))
    ctx.complete_in(makes)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    ctx.complete(mine)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def async_handler(ctx: JobContext) -> None:
    async with ctx.complete() as session:
        assert_type(session, AsyncSession)
    async with ctx.complete(makes_async) as mine:
        assert_type(mine, MyAsyncSession)
    async with MyAsyncSession() as open_session:
        await ctx.complete_in(open_session)
