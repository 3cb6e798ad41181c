"""Processes that run one of our commands, without the half second of processor time that the imports of others take.

They are forked from one that has imported what we depend on and nothing of ours. Everything else is as with
`subprocess.Popen`, of which they are: a number, streams, an environment, a folder and signals of their own, and whoever
asked for them is their parent. What is given to Python itself (`-W`, `sitecustomize`) takes a real start.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_ASKING = threading.Lock()


def start_python(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, **streams: Any
) -> subprocess.Popen[str]:
    """`python -m MODULE ARGUMENTS` by a real start."""
    return subprocess.Popen([sys.executable, "-m", *arguments], env=env, cwd=cwd, text=True, **streams)


class Forked(subprocess.Popen[str]):
    """`python -m MODULE ARGUMENTS`; elsewhere than on Linux by a real start."""

    def __init__(
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, **streams: Any
    ) -> None:
        super().__init__([sys.executable, "-m", *arguments], env=env, cwd=cwd, text=True, **streams)

    if sys.platform == "linux":

        def _execute_child(self, args: list[str], *others: Any) -> None:
            # All by position: executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
            # then both ends of three pipes, the reading one first, and more that nobody here asks for.
            folder, environment = others[4:6]
            pipes = others[9:15]
            ends = (pipes[0], pipes[3], pipes[5])
            streams = [number if end == -1 else end for number, end in enumerate(ends)]
            wanted = {"arguments": args[2:], "environment": dict(environment), "folder": str(folder)}
            with _ASKING:
                server = _fork_server()
                _take_in_orphans(True)
                try:
                    socket.send_fds(server, [json.dumps(wanted).encode()], streams)
                    answer = server.recv(20)
                finally:
                    _take_in_orphans(False)
            if not answer:
                raise RuntimeError("_fork_server.py has ended; what it wrote says why")
            self.pid = int(answer)
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(arguments: Sequence[str], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Wait for the end of one, with all that it wrote."""
    with Forked(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@cache
def _fork_server() -> socket.socket:
    """The other end of the socket on which the server listens. It ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = str(Path(__file__).with_name("_fork_server.py"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        [sys.executable, "-P", program, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=environment,
        # Python asks once, at its start, whether its streams can be wound back: those of processes mostly can't.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _take_in_orphans(yes: bool) -> None:
    """Whether processes below this one that lose their parent become its children; for a moment, for they need burial."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
