"""A unit of work of any kind behind the same coroutines: what is sync answers at once."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import insert

from tests.entry.application import Document

End = Callable[[], Any]


async def settled(answer: Any) -> Any:
    """What a call answers, awaited where it has to be."""
    return await answer if inspect.isawaitable(answer) else answer


class Unit:
    """One transaction after another, on a session or a connection, until it is closed."""

    def __init__(self, target: Any, *, is_session: bool = True, close: End | None = None) -> None:
        self.target = target
        self.is_session = is_session
        self._close = close or target.close

    async def put(self, *objects: object) -> None:
        """By `session.add()`, one after another."""
        for one in objects:
            self.target.add(one)

    async def put_all(self, objects: list[Any]) -> None:
        """By `session.add_all()`."""
        self.target.add_all(objects)

    async def merge(self, one: Any) -> Any:
        return await settled(self.target.merge(one))

    async def flush(self) -> None:
        if self.is_session:
            await settled(self.target.flush())

    async def store_document(self, title: str) -> None:
        """Work of the application's own in the same transaction."""
        if self.is_session:
            self.target.add(Document(title=title))
            await self.flush()
        else:
            await settled(self.target.execute(insert(Document).values(title=title)))

    async def nested(self) -> Any:
        """A savepoint, begun."""
        return await settled(self.target.begin_nested())

    async def commit(self) -> None:
        await settled(self.target.commit())

    async def rollback(self) -> None:
        await settled(self.target.rollback())

    async def expire(self) -> None:
        if self.is_session:
            self.target.expire_all()

    async def close(self) -> None:
        await settled(self._close())


class InOuterTransaction(Unit):
    """A session in a transaction that somebody else began: its commits are savepoints, and only the outer one counts."""

    def __init__(self, target: Any, outer: Any, close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(target, close=close)
        self._outer = outer

    async def commit(self) -> None:
        await super().commit()
        await settled(self._outer.commit())


class ThroughRepository(Unit):
    """Objects of the application's model are added by a repository, which flushes and reads them again."""

    def __init__(self, target: Any, repository: Any) -> None:
        super().__init__(target)
        self._repository = repository

    async def put(self, *objects: object) -> None:
        for one in objects:
            await settled(self._repository.add(one))

    async def put_all(self, objects: list[Any]) -> None:
        await settled(self._repository.add_many(objects))
