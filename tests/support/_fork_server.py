"""The process from which `tests.support.forked` has others forked. Standard library and dependencies only, nothing of ours.

Its only argument is a socket. Each message on it asks for one process: what it runs as JSON, and its three standard
streams. The answer is its number.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import socket
import sys
from typing import Any

#: What `import sa_jobqueue.cli` and Alembic's command import of others: most of the time that a start takes.
IMPORTED_BY_ALL = (
    "alembic.config",
    "click",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.orm",
)
LONGEST_MESSAGE = 1 << 20


def serve(requests: socket.socket) -> None:
    """Answer until the other side is closed."""
    path = list(sys.path)
    for module in IMPORTED_BY_ALL:
        importlib.import_module(module)
    gc.freeze()  # or the first collection of each process would copy all of it
    while True:
        try:
            message, streams, _, _ = socket.recv_fds(requests, LONGEST_MESSAGE, 3)
        except KeyboardInterrupt:  # at a terminal it is meant for the tests, and they end
            return
        if not message:
            return
        # The process is a grandchild whose parent has ended: it falls to whoever takes in orphans, which is who asks.
        answer, number = os.pipe()
        gate, latch = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                os.close(latch)
                os.read(gate, 1)  # until it is an orphan: its first question may be who its parent is
                for end in (answer, number, gate):
                    os.close(end)
                requests.close()
                _become(json.loads(message), streams, path)
                return
            os.write(number, str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)
        requests.send(os.read(answer, 20))
        for end in (answer, number, gate, latch, *streams):
            os.close(end)


def _become(wanted: dict[str, Any], streams: list[int], path: list[str]) -> None:
    """What `python -m MODULE ARGUMENTS` does after its own start."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [wanted["folder"], *(folder for folder in more if folder), *path]
    atexit.register(sys.stdout.flush)  # Alembic has kept it when it was imported, and says things there
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8"
    )
    sys.stdout = sys.__stdout__ = _output(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _output(2, errors="backslashreplace", line_buffering=True)  # type: ignore[misc]
    module, *arguments = wanted["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _output(number: int, **options: Any) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    options.setdefault("line_buffering", raw.isatty())
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", **options)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
