"""`python -m tests.benchmarks [NAME ...]`: run these benchmarks, or all, on a server of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from sa_jobqueue.testing import PostgresServer
from tests.benchmarks import (
    async_handlers,
    bulk,
    claim,
    completions,
    drain,
    enqueue,
    idle,
    latency,
    pinned,
    wake_up,
)
from tests.benchmarks.measure import durable_server

BENCHMARKS: Mapping[str, Callable[[PostgresServer], None]] = {
    "asyncio": async_handlers.run,
    "bulk": bulk.run,
    "claim": claim.run,
    "completions": completions.run,
    "drain": drain.run,
    "enqueue": enqueue.run,
    "idle": idle.run,
    "latency": latency.run,
    "pinned": pinned.run,
    "wake_up": wake_up.run,
}


def main(names: Sequence[str]) -> int:
    """Run them one after the other: they would disturb each other's clocks."""
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    with durable_server() as server:
        for name in names or BENCHMARKS:
            BENCHMARKS[name](server)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
