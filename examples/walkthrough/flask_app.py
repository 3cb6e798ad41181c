"""The Flask application, in this process, and its runner in another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import httpx
from werkzeug.serving import WSGIRequestHandler, make_server

from examples.flask_app.app import create_app
from examples.flask_app.models import db
from examples.walkthrough.orders import done_apart, refused_then_placed, show_receipt
from examples.walkthrough.stage import PATIENCE, Stage

FOLDER = "examples/flask_app"
READ = "examples/flask_app/app.py and jobs.py"
RUNNER = ("sa_jobqueue", "run", "examples.flask_app.jobs:jobs", "--burst")


def tell(stage: Stage) -> None:
    """A refused order, and one whose receipt comes when a runner does."""
    stage.say("$ flask --app examples.flask_app.app run    (its server runs inside this process)")
    with serving(stage.place.url) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        placed = refused_then_placed(stage, client)
        done_apart(stage, client, placed["job_id"], RUNNER)
        show_receipt(stage, client, placed["order_id"], "2 for ada@example.org")


class Quiet(WSGIRequestHandler):
    """The story shows the requests itself."""

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's own name
        pass


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The application behind a server on a free port, for the time of the block; its address."""
    app = create_app(url)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        with app.app_context():
            db.engine.dispose()
