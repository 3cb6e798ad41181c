"""Where all histories happen: one database, and the connections that one after another uses."""

from __future__ import annotations

from collections import Counter

import pytest
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, ExceptionContext, event

from sa_jobqueue.store.store import Store

RUNNER, OTHER_RUNNER = "runner-1", "runner-2"


class Ground:
    """The connections of a runner, of a person, of an application, and of a transaction that stays open."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        event.listen(engine, "handle_error", _fail_on_a_wait)
        self.store = Store(engine, name=RUNNER)
        self.person = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self.application = engine.connect()
        self.other: Connection = engine.connect()
        #: Verbs that did something, over all histories.
        self.reached: Counter[str] = Counter()

    def close(self) -> None:
        self.store.close()
        self.person.close()
        self.application.close()
        self.other.close()
        event.remove(self.engine, "handle_error", _fail_on_a_wait)


def _fail_on_a_wait(context: ExceptionContext) -> None:
    """Whatever the store makes of such an error: no history has a statement that may wait for a lock."""
    if isinstance(context.original_exception, LockNotAvailable):
        pytest.fail("a statement waits for a lock")
