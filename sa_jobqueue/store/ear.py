"""The ear of a runner: one connection that is told when jobs are committed, and that knows whether it hears at all.

LISTEN through a transaction pooler succeeds and nothing ever arrives, so whoever listens is tested first. Nothing here
knows jobs, or what follows from a notification.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy.exc import DBAPIError

from sa_jobqueue.queries.schema import channel, channel_stands
from sa_jobqueue.queries.session import backend_pid, listening
from sa_jobqueue.statements.listen import listen, notify, unlisten
from sa_jobqueue.store.own_connection import OwnConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from sa_jobqueue.store.driver import Heard

#: The channel of the test, the same for everybody: what a pooler can't be made to forget should be one thing.
PROBE_CHANNEL = "sa_jobqueue_probe"
#: A notification takes a few milliseconds; after so many seconds it doesn't come. With a server that answers itself,
#: and not by a pooler, it is only late.
PATIENCE, PATIENCE_WITH_A_SERVER = 2.0, 10.0
#: How often a pooler is asked for the session that was left listening.
TRIES = 20


class Ear:
    """Listens on the channel of the job table. Belongs to one thread but for `interrupt`.

    `notifier` leads to the database that the jobs are in, perhaps by another way than the ear's own engine.
    """

    def __init__(self, engine: Engine, notifier: Engine) -> None:
        self._engine = engine
        self._connection = OwnConnection(engine)
        self._notifier = notifier
        self._channel: str | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self.interrupted: bool = False
        self.pooled: bool = False

    def listen(self) -> bool:
        """Connect and listen; False when what is notified in the database of the jobs does not get here.

        Then nobody listens any more, as far as a pooler lets that be said, and the connection is closed. `pooled` tells
        whether a pooler is in between, so that it makes no sense to try again.
        """
        if self._bell is None:
            self._bell = socket.socketpair()
        self.reset()
        self._connection.driver.attend()
        self.pooled = self._is_pooled()
        if not self._hears():
            self.close_connection()
            if self.pooled:
                self._forget_probe()
            return False
        self._connection.rows(unlisten(PROBE_CHANNEL))
        self.check()  # the last word, so that pg_stat_activity shows what this connection is for
        return True

    def check(self) -> None:
        """Listen, once more. Nothing else tells of a silent server, or of tables that were made anew.

        Raises OperationalError when the server does not answer, LookupError when nothing will be notified there any more.
        """
        if self._channel is None:
            raise LookupError("the queue's tables are not there, and without them there is nothing to hear")
        if not self._connection.rows(channel_stands(), {"channel": self._channel})[0][0]:
            raise LookupError("the queue's tables were dropped, and new ones are heard of elsewhere")
        self._connection.rows(listen(self._channel))

    def hear(self, seconds: float) -> bool:
        """Whether something was notified within this time; returns at once when it was, or at an interruption.

        Raises OperationalError when the connection is lost.
        """
        return any(heard.channel == self._channel for heard in self._heard(seconds))

    def interrupt(self) -> None:
        """From any thread and for good: whoever hears now or later is back at once."""
        self.interrupted = True  # first: whoever hangs up the bell after the next line sees it
        if self._bell is not None:
            with suppress(OSError):  # closed already
                self._bell[1].send(b"\0")

    def reset(self) -> None:
        """Drop the connection, which may be broken."""
        self._connection.reset()

    def close_connection(self) -> None:
        """Hear no more; `listen` connects anew."""
        self._connection.close()

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()
        for end in self._bell or ():
            end.close()

    def _heard(self, seconds: float) -> list[Heard]:
        if self.interrupted or self._bell is None:
            return []
        return self._connection.driver.hear(self._bell[0], seconds)

    def _hears(self) -> bool:
        """Whether what is notified where the jobs are gets here; learns the channel there as well."""
        self._connection.rows(listen(PROBE_CHANNEL))
        word = uuid4().hex
        notifier = OwnConnection(self._notifier)
        try:
            self._channel = notifier.rows(channel())[0][0]
            notifier.rows(notify(), {"channel": PROBE_CHANNEL, "payload": word})
        finally:
            notifier.close()
        patience = PATIENCE if self.pooled else PATIENCE_WITH_A_SERVER
        return any(heard.payload == word for heard in self._until(time.monotonic() + patience))

    def _is_pooled(self) -> bool:
        """A pooler introduces itself with a process number of its own."""
        return bool(self._connection.rows(backend_pid())[0][0] != self._connection.driver.info.backend_pid)

    def _until(self, deadline: float) -> Iterator[Heard]:
        """What is heard up to then, or up to an interruption."""
        while not self.interrupted and (left := deadline - time.monotonic()) > 0:
            yield from self._heard(left)
        if not self.interrupted:
            # Not heard by a connection that answers: a lost one raises here. What was only late comes before the answer.
            self._connection.rows(backend_pid())
            yield from self._heard(0)

    def _forget_probe(self) -> None:
        """Look for the session that a pooler let listen, and take it back; given up after some tries."""
        with suppress(DBAPIError), self._engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.prepare_threshold = None
            for _ in range(TRIES):
                with connection.begin():  # what is done in it is done in one session
                    if PROBE_CHANNEL in connection.execute(listening()).scalars():
                        connection.execute(unlisten(PROBE_CHANNEL))
                        return
