"""`python3 tests`: everything that has to hold, on a bare machine, in environments of its own.

    python3 tests                  the gates, then the tests on SQLAlchemy 2.1 and on 2.0
    python3 tests gates            format, lint, types, layers
    python3 tests quick            the tests once, on SQLAlchemy 2.1
    python3 tests bench [NAME]     the benchmarks, which no other command runs
    python3 tests soak [--jobs N]  100,000 jobs while everything breaks, which no other command runs; --help tells more
    python3 tests [--] ARGUMENTS   the same with arguments for pytest: python3 tests -k claim

Standard library only, and readable by old Pythons: it runs before anything is installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of this folder: nothing in it is meant to be imported by its bare name

from tests.bootstrap import (  # noqa: E402
    ensure_environment,
    replace_process,
    require_python,
    runs_inside,
    told_in_one_line,
)

#: What is no test, and a program of its own.
ALONE = {"bench": "tests.benchmarks", "soak": "tests.chaos"}


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for; the exit code is 0 only when every step passed."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    require_python([str(ROOT / "tests"), *arguments])
    with told_in_one_line():
        python = ensure_environment(["test", "lint"])
        if not runs_inside(python):
            replace_process([str(python), "-m", "tests", *arguments], ROOT)
        if arguments and arguments[0] in ALONE:
            replace_process([str(python), "-m", ALONE[arguments[0]], *arguments[1:]], ROOT)
        os.chdir(ROOT)
        from tests.support.steps import all_tests, gates, oldest_sqlalchemy, pytest, run

        if not arguments:
            older = ensure_environment(["test"], name=".venv-sqlalchemy20", constraints=["sqlalchemy<2.1"])
            return run([*gates(python), *all_tests(python), *oldest_sqlalchemy(older)])
        if arguments == ["gates"]:
            return run(gates(python))
        rest = arguments[1:] if arguments[0] in ("quick", "--") else arguments
        return run([pytest(python, rest)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
