"""Processes without their imports: whoever gets one can't tell it from one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.forked import Forked, start_python
from tests.support.waiting import PATIENCE

TELLS = """
import os, signal, sys
print(os.getcwd(), dict(os.environ), sys.argv[1:], sys.path[0], __name__, sys.stdin.read())
print(sys.stdout.line_buffering, sys.stdout.encoding, sys.stderr.errors, signal.getsignal(signal.SIGINT))
print(sorted(int(number) for number in os.listdir("/dev/fd"))[:3])
print("ours" if "sa_jobqueue" in sys.modules else "nothing of ours")
print(os.getppid(), file=sys.stderr)
sys.exit(7)
"""
WAITS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize("start", [Forked, start_python])
def test_it_has_all_of_its_own(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Folder, environment, arguments, streams, exit code, parent; and no module of ours has been imported."""
    (tmp_path / "tells.py").write_text(TELLS)
    pipe = subprocess.PIPE
    variables = {"SA_JOBQUEUE_SCHEMA": "queue", "LC_CTYPE": "C.UTF-8"}
    process = start(["tells", "a", "-b c"], env=variables, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = process.communicate("read\n", timeout=PATIENCE)
    assert process.returncode == 7
    assert out.splitlines() == [
        f"{tmp_path} {variables} ['a', '-b c'] {tmp_path} __main__ read",
        "",
        "False utf-8 backslashreplace <built-in function default_int_handler>",
        "[0, 1, 2]",
        "nothing of ours",
    ]
    assert err == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (signal.SIGINT, -2)]
)
def test_signals_are_its_own(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """It ends by one as Python does, and those that were forked with it go on."""
    (tmp_path / "waits.py").write_text(WAITS)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        Forked(["waits"], env={}, cwd=tmp_path, **streams) as one,
        Forked(["waits"], env={}, cwd=tmp_path, **streams) as other,
    ):
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
        one.send_signal(number)
        assert one.wait(PATIENCE) == code
        assert other.poll() is None
        other.kill()


def test_what_it_raises_is_told(tmp_path: Path) -> None:
    """A traceback and code 1."""
    (tmp_path / "raises.py").write_text("raise ValueError('loudly')\n")
    done = forked.run(["raises"], env={}, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: loudly\n")
    assert done.stdout == ""


def test_an_orphan_is_nobodys_child_afterwards(tmp_path: Path) -> None:
    """Only the one that was asked for is taken in: others would stay as zombies, and seem to live."""
    leaves = "import os\npid = os.fork()\nif pid == 0:\n    os.read(0, 1)\nelse:\n    print(pid)\n"
    (tmp_path / "leaves.py").write_text(leaves)
    reader, writer = os.pipe()
    with Forked(["leaves"], env={}, cwd=tmp_path, stdin=reader, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        assert process.wait(PATIENCE) == 0
        with pytest.raises(ChildProcessError):
            os.waitpid(orphan, os.WNOHANG)
        os.close(writer)
    os.close(reader)
