"""The process from which runners are forked: all is imported once. Asked by lines of JSON, it answers by lines of JSON.

`{"start": settings}` is answered by the number of a new process, `{"wait": number, "seconds": n}` by its exit code, or by
null when it still runs then. It ends with its input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event

from sa_jobqueue.events import RunnerStarted
from sa_jobqueue.maintenance import unknown
from sa_jobqueue.runner import Runner, RunnerSettings, leases, pace
from tests.crash_points.application import DIRECT, LONG, LOOP, PROXIED, RUNNER, THREADS, jobs
from tests.crash_points.mutants import MUTANTS

#: A workload of a second has to meet what others meet in minutes.
leases.REPORT_INTERVAL = 0.05
unknown.KEPT, unknown.LOOK_LIMIT, unknown.LOOK_INTERVAL = 1, 10, 0.1
pace.CLAIM_AHEAD_PATIENCE = LONG / 2

_PR_SET_PDEATHSIG = 1


@event.listens_for(Engine, "do_connect")
def introduce(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
    """A connection is called after its runner and the thread that opens it, which tells what part of the runner it is."""
    parameters["application_name"] = f"{os.environ[RUNNER]} {threading.current_thread().name}"


def serve() -> None:
    gc.freeze()  # or the first collection of each process would copy all of it
    for line in sys.stdin:
        match json.loads(line):
            case {"start": settings}:
                # Nobody can stop a runner that has not begun; whoever asks for it meanwhile waits.
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                answer: int | None = os.fork()
                if answer == 0:
                    end_with_parent()
                    run(settings)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            case {"wait": pid, "seconds": seconds}:
                answer = wait(pid, seconds)
            case other:
                raise ValueError(f"what is {other}?")
        print(json.dumps(answer), flush=True)


def end_with_parent() -> None:
    """Nobody else would end a runner whose tests were killed; elsewhere than on Linux it is left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def wait(pid: int, seconds: float) -> int | None:
    ends_at = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends_at:
            return None
        time.sleep(0.004)


def run(settings: dict[str, Any]) -> None:
    """One runner, in this process, which ends with it."""
    code = 70
    try:
        log = os.open(settings["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (0, 1, 2):
            os.dup2(log if stream else os.open(os.devnull, os.O_RDONLY), stream)
        os.environ[PROXIED], os.environ[DIRECT] = settings["proxied"], settings["direct"]
        os.environ[RUNNER] = settings["name"]
        if settings["mutant"] is not None:
            MUTANTS[settings["mutant"]]()
        began = time.monotonic()

        def note(happened: object) -> None:
            if isinstance(happened, RunnerStarted):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.write(log, f"{time.monotonic() - began:.3f} {settings['name']} {happened}\n".encode())

        runner = Runner(
            jobs,
            settings["proxied"],
            RunnerSettings(
                queues={THREADS: 1, LOOP: 1},
                name=settings["name"],
                lease=timedelta(seconds=settings["lease"]),
                poll_interval=timedelta(milliseconds=100),
                rescue_interval=timedelta(milliseconds=100),
                prune_interval=timedelta(milliseconds=500),
                grace=timedelta(seconds=5),
            ),
            subscribers=[note],
        )
        code = runner.run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
