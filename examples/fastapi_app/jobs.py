"""What runs in the background, in the web process or by `sa-jobqueue run examples.fastapi_app.jobs:jobs`."""

from examples.fastapi_app.models import Order
from sa_jobqueue import JobContext, Registry

jobs = Registry()


@jobs.handler("order.send_receipt")
async def send_receipt(ctx: JobContext, order_id: int) -> None:
    async with ctx.complete() as session:  # one commit, with the end of the job; slow work comes before
        order = await session.get_one(Order, order_id)
        order.receipt = f"{order.quantity} for {order.email}"
