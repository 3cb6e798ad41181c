"""The driver's connection as a runner needs it: nothing it waits for may take for ever.

TCP notices a network that swallows packets. It does not notice a server that is stopped, or a proxy that keeps a
connection open with nobody behind it: there an answer simply never comes. Nothing here knows statements.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from psycopg import capabilities

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from datetime import timedelta

AnswerT = TypeVar("AnswerT")

# Made for every wait, so one that needs no file descriptor of its own.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
#: The share of the deadline after which the server is asked to cancel what it is doing.
PATIENCE = 0.8


class Heard(NamedTuple):
    """Something that was notified."""

    channel: str
    payload: str


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server has not answered by the deadline; then OperationalError is raised.

    A server that is alive is asked to cancel first: it would go on with what nobody waits for any more, and what a lock
    holds up there would pile up with every new try. Whatever it says to that counts as no answer, for the cancellation
    may reach it late and hit the next statement. With a libpq before 17, which can't ask without blocking, the
    connection is only closed.
    """

    deadline: float | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._heard: list[Heard] = []

    def attend(self) -> None:
        """From here on `hear` tells what is notified."""
        self.add_notify_handler(lambda told: self._heard.append(Heard(told.channel, told.payload)))

    def wait(self, gen: Generator[Any, Any, AnswerT], *args: Any, **options: Any) -> AnswerT:
        """Where the driver waits for its socket: the generator says for what, and is told what came.

        The driver's own loop has no end, and not all of its releases let the generator see that time goes by.
        """
        if self.deadline is None:
            return super().wait(gen, *args, **options)
        ends = time.monotonic() + self.deadline
        pause = ends - self.deadline * (1 - PATIENCE)
        asked = False
        try:
            wants = next(gen)
            with _Selector() as selector:
                selector.register(self.pgconn.socket, wants)
                while True:
                    left = (ends if asked else pause) - time.monotonic()
                    # Looked at in any case: a process that was stopped for a while may have its answer.
                    if ready := selector.select(max(left, 0)):
                        wants = gen.send(ready[0][1])
                        selector.modify(self.pgconn.socket, wants)
                    elif asked:
                        raise self._given_up()
                    else:
                        asked = True
                        self._ask_to_cancel(ends - time.monotonic())
        except StopIteration as end:
            if asked:
                raise self._given_up() from None
            answer: AnswerT = end.value
            return answer
        except psycopg.Error as error:
            if asked and not self.closed:
                raise self._given_up() from error
            raise

    def hear(self, interruption: socket.socket, seconds: float) -> list[Heard]:
        """What the server notifies within this time, at once when something comes; nothing once `interruption` is readable.

        What came along with the answer of a statement counts. Raises OperationalError when the connection is lost.
        """
        with _Selector() as selector:
            for waited_for in (self.pgconn.socket, interruption.fileno()):
                selector.register(waited_for, selectors.EVENT_READ)
            ready = selector.select(0 if self._heard else max(seconds, 0))
        if any(key.fd == self.pgconn.socket for key, _ in ready):
            self.pgconn.consume_input()
            while (told := self.pgconn.notifies()) is not None:
                self._heard.append(Heard(told.relname.decode(), told.extra.decode()))
        heard, self._heard = self._heard, []
        return heard

    def _ask_to_cancel(self, seconds: float) -> None:
        if capabilities.has_cancel_safe():
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=max(seconds, 0.1))  # 0 would mean for ever

    def _given_up(self) -> psycopg.OperationalError:
        self.close()
        return psycopg.OperationalError(f"the server has not answered within {self.deadline:g} s")


def connect(parameters: Mapping[str, Any], *, deadline: timedelta) -> BoundedConnection:
    """A connection with this deadline; to connect has its own, the driver's `connect_timeout`."""
    connection = BoundedConnection.connect(**{**parameters, **_addresses(parameters)})
    connection.deadline = deadline.total_seconds()
    return connection


def _addresses(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Host and address of every server, looked up here: the driver's own look-up stops all threads while it lasts.

    Nothing where there is nothing to look up: sockets, addresses, and hosts that the environment tells libpq.
    """
    hosts = str(parameters.get("host") or "").split(",")
    given = "hostaddr" in parameters or "service" in parameters or "PGHOSTADDR" in os.environ
    if given or not all(map(_is_name, hosts)):
        return {}
    ports = str(parameters.get("port", "")).split(",")
    if len(ports) not in (1, len(hosts)):
        return {}  # libpq says what is wrong
    found = [(at, address) for at, host in enumerate(hosts) for address in _resolve(host)]
    lists = {"host": [hosts[at] for at, _ in found], "hostaddr": [address for _, address in found]}
    if len(ports) > 1:
        lists["port"] = [ports[at] for at, _ in found]
    return {name: ",".join(values) for name, values in lists.items()}


def _is_name(host: str) -> bool:
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def _resolve(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise psycopg.OperationalError(f"can't look up the host {host!r}: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
