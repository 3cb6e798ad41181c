"""Where the application's database is, and the one engine of a process."""

from __future__ import annotations

import os
from functools import cache

from sqlalchemy import URL, Engine, create_engine

from sa_jobqueue.database import normalise_url

VARIABLES = ("DOCUMENTS_DATABASE_URL", "SA_JOBQUEUE_DATABASE_URL", "DATABASE_URL")


def database_url() -> URL:
    """The first URL in the environment, with psycopg as its driver. SystemExit when there is none."""
    for variable in VARIABLES:
        if url := os.environ.get(variable):
            return normalise_url(url)
    raise SystemExit(
        f"no database URL: set {' or '.join(VARIABLES)}, for example postgresql://user@localhost/documents"
    )


@cache
def engine() -> Engine:
    """Made at the first use, so that importing the handlers connects to nothing."""
    return create_engine(database_url())
