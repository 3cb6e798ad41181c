"""Two stores on one database: the runner under test, and somebody who gets in its way."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from sa_jobqueue.store.store import Store


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    """A runner's store."""
    store = Store(engine, name="runner-1")
    yield store
    store.close()


@pytest.fixture
def other(engine: Engine) -> Iterator[Store]:
    """Another runner's."""
    store = Store(engine, name="runner-2")
    yield store
    store.close()


@pytest.fixture
def token() -> UUID:
    """A token nobody else has."""
    return uuid4()
