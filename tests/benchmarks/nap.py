"""An async handler that awaits for as long as $BENCH_NAP says, in seconds: `sa-jobqueue run tests.benchmarks.nap:jobs`.

Its process speaks as that of `noop` does.
"""

from __future__ import annotations

import asyncio
import os

from sa_jobqueue.registry import Registry
from tests.benchmarks.noop import note_begin, note_end

NAP = float(os.environ.get("BENCH_NAP", "0.05"))
jobs = Registry()


@jobs.handler("nap")
async def nap(number: int) -> None:
    """Wait as for an answer of somebody else's."""
    note_begin()
    await asyncio.sleep(NAP)
    note_end(number)
