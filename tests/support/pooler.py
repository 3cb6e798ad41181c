"""A transaction pooler at its barest: whenever a client is idle, what it sends next goes to another session."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from select import select

from sqlalchemy import URL, make_url

from sa_jobqueue.testing.server import connect

PORT = 6432
SETTINGS = {
    b"client_encoding": b"UTF8",
    b"server_version": b"17.0",
    b"standard_conforming_strings": b"on",
    b"TimeZone": b"UTC",
}
IDLE = b"Z\0\0\0\5I"


class Pooler:
    """Listens on a socket in `folder`; `url` leads there. Close it when its clients are gone."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self._database_url = database_url
        self.url: URL = make_url(database_url).set(
            host=None, port=PORT, query={"host": str(folder), "gssencmode": "disable"}
        )
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listener.listen()
        self._clients: list[threading.Thread] = []
        self._door = threading.Thread(target=self._accept)
        self._door.start()

    def close(self) -> None:
        """Let nobody in any more, and wait for those inside to go."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in (self._door, *self._clients):
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(threading.Thread(target=self._serve, args=(client,)))
            self._clients[-1].start()

    def _serve(self, client: socket.socket) -> None:
        sessions = [connect(self._database_url) for _ in range(2)]
        wires = [socket.socket(fileno=os.dup(session.fileno())) for session in sessions]
        for wire in wires:
            wire.setblocking(True)
        with client:
            client.recv(65536)  # who it is and what it wants does not matter here
            client.sendall(_greeting())
            _relay(client, wires)
        for wire, session in zip(wires, sessions, strict=True):
            wire.close()
            session.close()


def _greeting() -> bytes:
    settings = [_message(b"S", name + b"\0" + value + b"\0") for name, value in SETTINGS.items()]
    return b"".join([_message(b"R", bytes(4)), *settings, _message(b"K", bytes(8)), IDLE])


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


def _relay(client: socket.socket, wires: list[socket.socket]) -> None:
    end, idle = b"", True
    while True:
        readable, _, _ = select([client, wires[0]], [], [])
        if client in readable:
            if not (data := client.recv(65536)):
                return
            if idle:
                wires.reverse()
                idle = False
            if not data.startswith(b"X"):  # a client that says goodbye does not end the session
                wires[0].sendall(data)
        else:
            data = wires[0].recv(65536)
            client.sendall(data)
            end = (end + data)[-len(IDLE) :]
            idle = end == IDLE
