"""A program with a SIGTERM handler of its own that embeds a runner: `python -m tests.apps.host thread|task|main`.

The first start is ended by its handler, the second by the API; what it prints at the end says what it has seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from types import FrameType

from sa_jobqueue.runner import Runner, RunnerSettings
from tests.apps.ledger import jobs

runner = Runner(
    jobs,
    os.environ["SA_JOBQUEUE_DATABASE_URL"],
    RunnerSettings(poll_interval=timedelta(milliseconds=50), grace=timedelta(seconds=5)),
)
heard: list[int] = []


def on_signal(number: int, _frame: FrameType | None) -> None:
    heard.append(number)
    runner.request_stop("the host was told to end")


def in_a_thread() -> None:
    thread = threading.Thread(target=runner.run, kwargs={"handle_signals": False})
    thread.start()
    thread.join()


async def as_a_task() -> None:
    task = asyncio.create_task(runner.serve())

    def on_loop_signal() -> None:
        heard.append(signal.SIGTERM)
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_loop_signal)
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    loop.remove_signal_handler(signal.SIGTERM)
    async with runner:
        pass


def main(way: str) -> None:
    signal.signal(signal.SIGTERM, on_signal)
    match way:
        case "thread":
            in_a_thread()
        case "task":
            asyncio.run(as_a_task())
            signal.signal(signal.SIGTERM, on_signal)  # the loop has taken its own away
        case _:
            runner.run(handle_signals=False)
    with runner:
        kept = signal.getsignal(signal.SIGTERM) is on_signal
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print(json.dumps({"heard": heard, "kept": kept, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1])
