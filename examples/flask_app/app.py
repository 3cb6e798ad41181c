"""The web application: `flask --app examples.flask_app.app run`."""

import os
from typing import Any

from flask import Blueprint, Flask, abort, request, url_for

from examples.flask_app.jobs import send_receipt
from examples.flask_app.models import Order, db
from sa_jobqueue import enqueue, ref
from sa_jobqueue.admin import get_job

IN_STOCK = 100

shop = Blueprint("shop", __name__)


def create_app(database_url: str | None = None) -> Flask:
    """The application on that database; without one on that of the environment."""
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url or os.environ["DATABASE_URL"]
    db.init_app(app)
    app.register_blueprint(shop)
    return app


@shop.post("/orders")
def place_order() -> Any:
    new = request.get_json()
    order = Order(email=new["email"], quantity=new["quantity"])
    db.session.add_all([order, job := enqueue(send_receipt.call(order_id=ref(order)))])
    db.session.flush()  # both have their ids, and nobody else sees them yet
    if order.quantity > IN_STOCK:
        abort(409, "not that many in stock")  # Flask-SQLAlchemy rolls back: no order, and so no job
    answer = {"order_id": order.id, "job_id": job.id}  # the commit expires both objects
    db.session.commit()
    return answer, 202, {"Location": url_for("shop.show_job", job_id=answer["job_id"])}


@shop.get("/orders/<int:order_id>")
def show_order(order_id: int) -> Any:
    order = db.get_or_404(Order, order_id)
    return {"quantity": order.quantity, "receipt": order.receipt}


@shop.get("/jobs/<int:job_id>")
def show_job(job_id: int) -> Any:
    job = get_job(db.session, job_id)
    if job is None:
        abort(404, "no such job")
    return {"status": job.status, "reason": job.reason}
