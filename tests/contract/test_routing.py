"""Sessions that send what only reads to a replica: jobs are written, and looked at, where they are kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Delete, Engine, Insert, Update, create_engine
from sqlalchemy.exc import SADeprecationWarning
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import Job, enqueue, enqueue_many
from sa_jobqueue.admin import cancel
from sa_jobqueue.testing import assert_enqueued
from tests.contract.conftest import Place

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SADeprecationWarning)  # its import uses what SQLAlchemy 2.1 deprecates
    from advanced_alchemy.config import SQLAlchemySyncConfig
    from advanced_alchemy.config.routing import RoutingConfig


@pytest.fixture
def replica(place: Place) -> Iterator[Engine]:
    """It takes no writes."""
    read_only = {"options": "-c default_transaction_read_only=on"}
    engine = create_engine(place.url, connect_args=read_only)
    yield engine
    engine.dispose()


def recipe(place: Place, replica: Engine) -> Any:
    """As SQLAlchemy's documentation has it, with the statements that it leaves out."""

    class RoutingSession(Session):
        def get_bind(self, mapper: Any = None, *, clause: Any = None, **_: Any) -> Any:
            writes = self._flushing or isinstance(clause, Insert | Update | Delete)
            return place.engines["psycopg"] if writes else replica

    return sessionmaker(class_=RoutingSession)


def advanced_alchemy(place: Place, replica: Engine) -> Any:
    """With its own configuration."""
    url = replica.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    config = SQLAlchemySyncConfig(
        routing_config=RoutingConfig(
            primary_connection_string=place.url,
            read_replicas=[url.render_as_string(hide_password=False)],
            sticky_after_write=False,
        )
    )
    return config.create_session_maker()


@pytest.mark.parametrize("make", [recipe, advanced_alchemy])
def test_jobs_go_where_writes_go(make: Callable[[Place, Engine], Any], place: Place, replica: Engine) -> None:
    """By the flush, in bulk and by the verbs; what is not committed is seen by the test helpers."""
    with make(place, replica)() as session:
        session.add(job := enqueue("by the flush"))
        session.flush()
        enqueue_many(session, [enqueue("in bulk")])
        assert job.enqueued
        assert cancel(session, [job.enqueued.id])[0].status == "cancelled"
        assert_enqueued(session, "in bulk")
        session.commit()
        engines = {session.get_bind(Job), session.get_bind(Job, clause=Insert(Job.__table__))}  # type: ignore[arg-type]
    for engine in engines:
        engine.dispose()
    assert len(engines) == 2
    assert place.kinds() == ["by the flush", "in bulk"]
