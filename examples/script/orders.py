"""Orders and their receipts: `python -m examples.script.orders`, after `alembic -c examples/script/alembic.ini upgrade head`.

Other processes may help with the receipts: `sa-jobqueue run examples.script.orders:jobs`.
"""

import os
import sys

from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sa_jobqueue import Job, JobContext, Registry, enqueue, ref
from sa_jobqueue.admin import get_job
from sa_jobqueue.logs import log_event
from sa_jobqueue.runner import Runner, RunnerSettings

jobs = Registry()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    quantity: Mapped[int]
    receipt: Mapped[str | None]


@jobs.handler("order.send_receipt")
def send_receipt(ctx: JobContext, order_id: int) -> None:
    """Slow work comes first, outside of any transaction. The receipt and the end of the job are one commit."""
    with ctx.complete() as session:
        order = session.get_one(Order, order_id)
        order.receipt = f"{order.quantity} for {order.email}"


def place_order(session: Session, email: str, quantity: int) -> tuple[Order, Job]:
    """Add an order and its job to the session; they are there when the caller commits, and not before."""
    order = Order(email=email, quantity=quantity)
    job = enqueue(send_receipt.call(order_id=ref(order)))
    session.add_all([order, job])
    session.flush()  # both have their ids
    return order, job


def count(session: Session) -> str:
    orders, jobs = (session.scalar(select(func.count()).select_from(entity)) for entity in (Order, Job))
    return f"orders: {orders}, jobs: {jobs}"


def main() -> int:
    """The exit code is that of the runner: 0 when every outcome was written."""
    engine = create_engine(os.environ["DATABASE_URL"])
    with Session(engine) as session:
        place_order(session, "ada@example.org", 1000)
        print(f"before the rollback: {count(session)}")
        session.rollback()  # no order, and so no job
        print(f"after the rollback: {count(session)}")

    with Session(engine) as session, session.begin():
        order, job = place_order(session, "ada@example.org", 2)
        order_id, job_id = order.id, job.id
    with Session(engine) as session:
        print(f"after the commit: {count(session)}")

    # Everything that is due, here and now. `sa-jobqueue run examples.script.orders:jobs --burst` does the same.
    code = Runner(jobs, engine, RunnerSettings(burst=True), subscribers=[log_event]).run()
    with Session(engine) as session:
        done, order = get_job(session, job_id), session.get_one(Order, order_id)
        print(f"job {job_id}: {done and done.status}; receipt: {order.receipt}")
    engine.dispose()
    return code


if __name__ == "__main__":
    sys.exit(main())
