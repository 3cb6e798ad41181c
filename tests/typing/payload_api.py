"""What type checkers must see of typed payloads and of what registries provide: checked by mypy and pyright, never executed.

A wrong call carries the ignores of both; when a checker stops flagging it, the unused ignore fails the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypedDict, assert_type
from uuid import UUID

import pydantic
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import PROVIDED, JobContext, Registry, enqueue, ref
from sa_jobqueue.records import HandlerCall
from sa_jobqueue.testing import perform


@dataclass
class Item:
    id: UUID
    price: Decimal


class Options(TypedDict, total=False):
    colour: str


class Address(pydantic.BaseModel):
    street: str


class Client:
    """What a registry provides."""


def make_client() -> Client:
    return Client()


jobs = Registry()
jobs.provide(Client, factory=make_client)
jobs.provide(sessionmaker, sessionmaker[Session]())


@jobs.handler("order.ship")
def ship(
    ctx: JobContext,
    items: list[Item],
    at: datetime,
    to: Address | None = None,
    options: Options | None = None,
    *,
    client: Client = PROVIDED,
) -> UUID:
    assert_type(client, Client)
    return items[0].id


def right_calls(ctx: JobContext, at: datetime, item: Item) -> None:
    assert_type(ship.call([item], at), HandlerCall)
    ship.call(items=[item], at=at, to=Address(street="a"), options={"colour": "red"})
    ship.call(items=[ref(item)], at=ref(item, "at"))
    assert_type(ship(ctx, [item], at, client=Client()), UUID)
    enqueue("order.ship", {"items": []}, priority=0)
    perform(ship.call([item], at), provide={Client: Client()})


def wrong_calls(at: datetime, item: Item) -> None:
    ship.call(item, at)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ship.call([item], "2026-11-30")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ship.call([item])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ship.call([item], at, {"street": "a"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ship.call([item], at, options={"color": "red"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ship.call([Item(id="7", price=Decimal(1))], at)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong_providers() -> None:
    jobs.provide(Client)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
