"""A claimed job on a database that also has an application's tables, ready to be completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine

from tests.support.completions import Run, run_of
from tests.support.jobs import MINUTE, add_job

Claim = Callable[..., Run]


@pytest.fixture
def database_url(application_url: str) -> str:
    """Every database here also has the application's tables."""
    return application_url


@pytest.fixture
def claim(engine: Engine) -> Iterator[Claim]:
    """Adds a job and claims it: one run after another."""
    with ExitStack() as runs:

        def claimed(*, lease: timedelta = MINUTE, **columns: Any) -> Run:
            add_job(engine, **columns)
            run = run_of(engine, uuid4(), lease=lease)
            runs.callback(run.close)
            return run

        yield claimed


@pytest.fixture
def handlers(engine: Engine) -> Iterator[Engine]:
    """The handlers' own engine: what it sends is theirs and their completion's."""
    engine = create_engine(engine.url)
    yield engine
    engine.dispose()


@pytest.fixture
def run(claim: Claim) -> Run:
    """One run of one job."""
    return claim()
