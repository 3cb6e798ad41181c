"""Calls that block, awaited by a host's event loop: each in a thread of its own, and none left behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ResultT = TypeVar("ResultT")


async def in_thread(
    call: Callable[[], ResultT], *, on_cancel: Callable[[], object] = lambda: None
) -> ResultT:
    """What the call returns or raises; the loop goes on meanwhile, and its own pool of threads is left to the host.

    Whoever cancels it waits for the end of the call all the same, which `on_cancel` may hasten: a call can't be broken
    off, and must not go on with nobody there. Then CancelledError is raised, or what the call raised. Who throws the
    coroutine away has the end hastened too.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            _tell(loop, future.set_exception, error)
        else:
            _tell(loop, future.set_result, result)

    thread = threading.Thread(target=run, name="sa_jobqueue-awaited", daemon=True)
    thread.start()
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            if cancelled is None:
                on_cancel()
            cancelled = error
        except GeneratorExit:  # the host's loop has ended without it: nobody will wait any more
            on_cancel()
            raise
    thread.join()  # it has nothing left to do
    result = future.result()
    if cancelled is not None:
        raise cancelled
    return result


def _tell(loop: asyncio.AbstractEventLoop, decide: Callable[[ResultT], object], result: ResultT) -> None:
    with suppress(RuntimeError):  # the loop was closed without waiting, so nobody is there to be told
        loop.call_soon_threadsafe(decide, result)
