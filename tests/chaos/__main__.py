"""Runners, producers and an operator at work on a PostgreSQL of their own while everything breaks.

Four runner processes take jobs from two producers. In each round every kind of fault comes once, some of
them together, and after each all runners have to claim again. A round takes two or three minutes and some
10,000 jobs on two processors, 100,000 jobs so half an hour or less. In the end a table tells what was done
and how long the runners took after each kind of fault.

Exit code 0: no job was lost, nothing was done twice, every runner came back in time. 1: each line that
begins with WRONG tells what was not so.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.drive import run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 tests soak",
        description=__doc__,
        epilog="It runs on the newest PostgreSQL of this machine; SA_JOBQUEUE_TEST_POSTGRES=wheel takes the one from the wheel.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=100_000,
        help="end with the round in which so many jobs have been added (100000)",
    )
    parser.add_argument(
        "--minutes", metavar="M", type=float, default=0, help="and no sooner than after so many minutes (0)"
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        default=None,
        help="of the order, the victims and the lengths of the faults; what they meet is another matter each time"
        " (any, and the table tells which)",
    )
    parser.add_argument(
        "--longest",
        metavar="S",
        type=float,
        default=8,
        help="seconds that an outage lasts at most, beside what it takes to outlast a lease or a deadline (8)",
    )
    parser.add_argument(
        "--logs", metavar="FOLDER", type=Path, default=None, help="where to put what the runners have logged"
    )
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    report = run(seed=seed, jobs=given.jobs, minutes=given.minutes, longest=given.longest, tell=_tell)
    print(report.table(), flush=True)
    if given.logs is not None:
        given.logs.mkdir(parents=True, exist_ok=True)
        for name, log in report.logs.items():
            (given.logs / f"{name}.log").write_text(log)
    found = [*report.wrong(), *report.slow()]
    for fault in found:
        print(f"WRONG: {fault}")
    return 1 if found else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
