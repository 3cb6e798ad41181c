"""The web application: `uvicorn examples.fastapi_app.app:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from examples.fastapi_app.jobs import jobs, send_receipt
from examples.fastapi_app.models import Order
from sa_jobqueue import WaitTimeoutError, enqueue, ref, wait_for
from sa_jobqueue.logs import log_event
from sa_jobqueue.runner import Runner


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(os.environ["DATABASE_URL"])  # psycopg or asyncpg
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    embedded = os.environ.get("EMBEDDED_RUNNER", "yes") == "yes"  # else by `sa-jobqueue run`, apart
    async with Runner(jobs, engine, subscribers=[log_event]) if embedded else nullcontext():
        yield
    await engine.dispose()


async def session_of(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:  # what is not committed is rolled back
        yield session


app = FastAPI(lifespan=lifespan)
OwnSession = Annotated[AsyncSession, Depends(session_of)]
IN_STOCK = 100


class NewOrder(BaseModel):
    email: str
    quantity: int


@app.post("/orders", status_code=202)
async def place_order(new: NewOrder, session: OwnSession) -> dict[str, int]:
    order = Order(email=new.email, quantity=new.quantity)
    session.add_all([order, job := enqueue(send_receipt.call(order_id=ref(order)))])
    await session.flush()  # both have their ids, and nobody else sees them yet
    if order.quantity > IN_STOCK:
        raise HTTPException(409, "not that many in stock")  # no commit: no order, and so no job
    await session.commit()  # here: what comes after a dependency's yield may come after the response
    return {"order_id": order.id, "job_id": job.id}


@app.get("/orders/{order_id}")
async def show_order(order_id: int, session: OwnSession) -> dict[str, Any]:
    if (order := await session.get(Order, order_id)) is None:
        raise HTTPException(404, "no such order")
    return {"quantity": order.quantity, "receipt": order.receipt}


@app.get("/jobs/{job_id}")
async def show_job(job_id: int, request: Request, wait: Annotated[int, Query(ge=0, le=30)] = 0) -> Any:
    try:  # it looks now and then, and holds no connection in between
        end = await wait_for(request.app.state.sessions, job_id, timeout=timedelta(seconds=wait))
    except WaitTimeoutError as error:
        return {"status": error.status}  # the job goes on: ask again
    except LookupError:
        raise HTTPException(404, "no such job") from None
    return {"status": end.status}
