"""`python -m tests.chaos [--jobs N] [--seed N] [--minutes M]`: the long form."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.drive import run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 tests soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="end once so many jobs were added (100000)")
    parser.add_argument("--minutes", type=float, default=0, help="and no sooner than this (0)")
    parser.add_argument("--seed", type=int, default=None, help="of the plan of faults; any, when not given")
    parser.add_argument("--longest", type=float, default=8, help="seconds that an outage lasts at most (8)")
    parser.add_argument("--logs", type=Path, default=None, help="a folder for what the runners have logged")
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
