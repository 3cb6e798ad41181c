"""A TCP proxy in front of PostgreSQL that loses what a network may lose, at the very statement that a test picks.

It reads as much of the wire protocol as it takes to know which SQL text a client is sending. What it did can be waited
for, so that a test goes by events and never by time.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from select import select

import pytest
from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.sql.expression import ClauseElement

from tests.support.waiting import PATIENCE

#: Client messages that belong to a statement of the extended protocol; Sync or a simple Query ends one.
_PARTS, _ENDS = b"PBDECH", b"SQ"
_READY = b"Z"[0]

Pick = Callable[[str], bool]
#: The same by who sends it, which is the connection's `application_name`, and the text.
PickOf = Callable[[str, str], bool]


class Fate(Enum):
    """What becomes of a statement that a rule picks."""

    LOSE = "the connection breaks before the statement gets through"
    LOSE_ANSWER = "the statement lands, then the connection breaks in place of the answer"
    LAND_LATE = "the connection breaks, and the statement lands when the test says so"
    HOLD = "the statement waits until the test says so, then goes on as if nothing had been"
    SWALLOW = "neither the statement nor anything after it gets through, and the connection lives"
    SWALLOW_ANSWER = "the statement lands, its answer never comes, and the connection lives"


def sends(*statements: ClauseElement) -> Pick:
    """Picks these statements, whatever their parameters are."""
    wanted = {_bare(str(statement.compile(dialect=psycopg.dialect()))) for statement in statements}
    return lambda text: _bare(text) in wanted


def _bare(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"%\(\w+\)s|\$\d+", "$", text))


class Rule:
    """One fate for the statements that a predicate picks, as often as `times` says (None: always)."""

    def __init__(self, pick: PickOf, fate: Fate, times: int | None) -> None:
        self.pick = pick
        self.fate = fate
        self.struck = 0
        self.landed = 0
        self.spilled = 0
        self._left = times
        self._changed = threading.Condition()
        self._released = False
        self._held: list[_Link] = []

    def take(self, sender: str, text: str) -> bool:
        """Whether this statement is one of those; counts it."""
        with self._changed:
            if self._left == 0 or not self.pick(sender, text):
                return False
            if self._left is not None:
                self._left -= 1
            return True

    def wait(self, count: int = 1, timeout: float = PATIENCE) -> None:
        """Block until so many statements have met their fate."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.struck >= count, timeout):
                raise AssertionError(f"{self.fate.name} struck {self.struck} statements, not {count}")

    def release(self, timeout: float = PATIENCE) -> None:
        """Let through what is held or comes late, and block until the server has answered it, or had ended its session."""
        with self._changed:
            self._released = True
            held, self._held = self._held, []
        for link in held:
            link.wake()
        with self._changed:
            if not self._changed.wait_for(lambda: self.landed + self.spilled >= self.struck, timeout):
                raise AssertionError(f"{self.landed} of {self.struck} statements landed after their release")

    def stop(self) -> None:
        """Pick nothing more."""
        with self._changed:
            self._left = 0

    @property
    def released(self) -> bool:
        return self._released

    def note(self, *, struck: int = 0, landed: int = 0, spilled: int = 0, held: _Link | None = None) -> None:
        with self._changed:
            self.struck += struck
            self.landed += landed
            self.spilled += spilled
            if held is not None:
                self._held.append(held)
            self._changed.notify_all()


class Proxy:
    """Listens on 127.0.0.1; `url` leads through it to the database. Close it when its clients are gone."""

    def __init__(self, database_url: str) -> None:
        upstream = make_url(database_url)
        folder = upstream.query.get("host")
        port = upstream.port or int(str(upstream.query.get("port", 5432)))
        self._upstream = f"{folder}/.s.PGSQL.{port}" if folder else (upstream.host or "127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url: URL = upstream.set(
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            query={"sslmode": "disable", "gssencmode": "disable"},
        )
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._rules: list[Rule] = []
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        #: Who has sent what, in order.
        self.sent: list[tuple[str, str]] = []
        self.refusing = self.silent = False
        self.turned_away = 0
        self._door = threading.Thread(target=self._accept, name="proxy")
        self._door.start()

    def on(self, pick: Pick, fate: Fate, *, times: int | None = 1) -> Rule:
        """From now on the next statements that are picked meet this fate; of several rules the first one counts."""
        return self.on_sender(lambda _, text: pick(text), fate, times=times)

    def on_sender(self, pick: PickOf, fate: Fate, *, times: int | None = 1) -> Rule:
        """The same for a choice that goes by who sends them as well."""
        rule = Rule(pick, fate, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def wait_for(self, pick: Pick, count: int = 1, timeout: float = PATIENCE) -> None:
        """Block until so many statements that are picked have been sent, whatever became of them."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count(pick) >= count, timeout):
                raise AssertionError(f"{self.count(pick)} of {count} statements were sent")

    def count(self, pick: Pick) -> int:
        """How many statements that are picked have been sent so far."""
        return sum(pick(text) for _, text in list(self.sent))

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Every connection breaks, and new ones are closed at once."""
        self.refusing = True
        self._end_links()
        try:
            yield
        finally:
            self.refusing = False

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Nothing gets through in either direction while every connection lives; new ones are accepted, and mute.

        Connections that were open at that time stay mute after it.
        """
        with self._lock:
            self.silent = True
            links = list(self._links)
        for link in links:
            link.silent = True
            link.wake()
        try:
            yield
        finally:
            self.silent = False

    def close(self) -> None:
        """Let nobody in, break what is open and wait for its end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._door.join(PATIENCE)
        self._listener.close()
        self._end_links()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _end_links(self) -> None:
        with self._lock:
            links = list(self._links)
        for link in links:
            link.ending = True
            link.wake()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                self.turned_away += 1
                client.close()
                continue
            # Its messages go one by one: each would wait for the acknowledgement of the one before.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client)
            with self._lock:
                self._links.add(link)
            thread = threading.Thread(target=self._serve, args=(link,), name="proxy")
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: _Link) -> None:
        try:
            link.run()
        finally:
            with self._lock:
                self._links.discard(link)

    def connect(self) -> socket.socket:
        """A new connection to the real server."""
        if isinstance(self._upstream, tuple):
            return socket.create_connection(self._upstream)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._upstream)
        return server

    def judge(self, sender: str, text: str) -> Rule | None:
        """The rule for a statement that is just being sent."""
        with self._changed:
            rules = list(self._rules)
            self.sent.append((sender, text))
            self._changed.notify_all()
        return next((rule for rule in rules if rule.take(sender, text)), None)


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the test's database."""
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


class _Link:
    """One client's connection and the one to the server behind it, carried by one thread."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self.silent = proxy.silent
        self.ending = False
        self._proxy = proxy
        self._client: socket.socket | None = client
        self._server: socket.socket | None = None
        self._sender = ""
        self._names: dict[bytes, str] = {}
        self._waking, self._woken = os.pipe()
        self._from_client = self._from_server = b""
        self._group = b""
        self._text: str | None = None
        self._started = False
        self._rule: Rule | None = None
        self._waiting = b""

    def wake(self) -> None:
        """Make the thread look at the flags, from any thread."""
        with suppress(OSError):
            os.write(self._woken, b"!")

    def run(self) -> None:
        try:
            with suppress(ConnectionError, BrokenPipeError):
                self._server = self._proxy.connect()
                while self._turn():
                    pass
        finally:
            self._drop_client()
            self._drop_server()
            if self._rule is not None:
                self._rule.note(spilled=1)
            woken, self._woken = self._woken, -1
            os.close(self._waking)
            os.close(woken)

    def _turn(self) -> bool:
        """Carry what is there; False at the end."""
        sources = [one for one in (self._client, self._server, self._waking) if one is not None]
        readable, _, _ = select(sources, [], [])
        if self._waking in readable:
            os.read(self._waking, 64)
        if self.ending:
            return False
        if self._waiting and self._rule is not None and self._rule.released:
            waiting, self._waiting = self._waiting, b""
            self._to_server(waiting)
        if self._client is not None and self._client in readable:
            data = self._client.recv(65536)
            if not data:
                return False
            self._from_client += data
            if not self.silent:
                self._read_client()
        if self._server is not None and self._server in readable:
            data = self._server.recv(65536)
            if not data:
                # A mute connection tells the client nothing, not even that the server is gone.
                self._drop_server()
                return self.silent
            self._from_server += data
            if not self.silent or self._rule is not None:
                self._read_server()
        return not self.ending

    def _read_client(self) -> None:
        if not self._started:
            if len(self._from_client) < 4 or len(self._from_client) < _size(self._from_client, 0):
                return
            size = _size(self._from_client, 0)
            start, self._from_client = self._from_client[:size], self._from_client[size:]
            self._started = True
            self._sender = _application_name(start)
            self._to_server(start)
        while not self._waiting and not self.silent and (message := self._next_message()):
            if message[0] in _PARTS or message[0] in _ENDS:
                self._group += message
                self._learn(message)
                if message[0] in _ENDS:
                    group, self._group = self._group, b""
                    text, self._text = self._text, None
                    self._send(group, text)
            else:
                self._to_server(message)

    def _next_message(self) -> bytes:
        if len(self._from_client) < 5 or len(self._from_client) < 1 + _size(self._from_client, 1):
            return b""
        size = 1 + _size(self._from_client, 1)
        message, self._from_client = self._from_client[:size], self._from_client[size:]
        return message

    def _learn(self, message: bytes) -> None:
        """What a statement's text is, also when it was prepared long ago. Parsed only, it is not sent yet."""
        parts = message[5:].split(b"\0", 2)
        match message[:1]:
            case b"P":
                self._names[parts[0]] = parts[1].decode()
            case b"B":
                self._text = self._names[parts[1]]
            case b"Q":
                self._text = parts[0].decode()

    def _send(self, group: bytes, text: str | None) -> None:
        rule = None if text is None else self._proxy.judge(self._sender, text)
        if rule is None:
            self._to_server(group)
            return
        match rule.fate:
            case Fate.LOSE:
                self.ending = True
                self._drop_client()
                rule.note(struck=1)
            case Fate.SWALLOW:
                self.silent = True
                rule.note(struck=1)
            case Fate.LOSE_ANSWER | Fate.SWALLOW_ANSWER:
                self._rule = rule
                self._to_server(group)
            case Fate.LAND_LATE | Fate.HOLD:
                self._rule, self._waiting = rule, group
                if rule.fate is Fate.LAND_LATE:
                    self._drop_client()
                rule.note(struck=1, held=self)
                if rule.released:
                    self.wake()

    def _read_server(self) -> None:
        while len(self._from_server) >= 5 and len(self._from_server) >= 1 + _size(self._from_server, 1):
            size = 1 + _size(self._from_server, 1)
            message, self._from_server = self._from_server[:size], self._from_server[size:]
            rule = self._rule
            lost = rule is not None and rule.fate is not Fate.HOLD
            if not lost and self._client is not None:
                self._client.sendall(message)
            if rule is not None and message[0] == _READY:
                self._rule = None
                self._answered(rule)

    def _answered(self, rule: Rule) -> None:
        match rule.fate:
            case Fate.LOSE_ANSWER:
                self.ending = True
                self._drop_client()
                rule.note(struck=1, landed=1)
            case Fate.SWALLOW_ANSWER:
                self.silent = True
                rule.note(struck=1, landed=1)
            case Fate.LAND_LATE:
                self.ending = True
                rule.note(landed=1)
            case _:
                rule.note(landed=1)

    def _to_server(self, data: bytes) -> None:
        if self._server is not None:
            self._server.sendall(data)

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _drop_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _size(data: bytes, at: int) -> int:
    size: int = struct.unpack_from("!i", data, at)[0]
    return size


def _application_name(start: bytes) -> str:
    """From a client's first message: its size, the version, then names and values in turn."""
    words = start[8:].split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()
