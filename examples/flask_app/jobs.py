"""What runs in the background: `sa-jobqueue run examples.flask_app.jobs:jobs`. It needs no application context."""

from examples.flask_app.models import Order
from sa_jobqueue import JobContext, Registry

jobs = Registry()


@jobs.handler("order.send_receipt")
def send_receipt(ctx: JobContext, order_id: int) -> None:
    with ctx.complete() as session:  # one commit, with the end of the job; slow work comes before
        order = session.get_one(Order, order_id)
        order.receipt = f"{order.quantity} for {order.email}"
