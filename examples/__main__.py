"""`python3 examples [FOLDER] ...`: the examples on a bare machine, in an environment and on a PostgreSQL of their own.

Standard library only, and readable by old Pythons: it runs before anything is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of this folder: nothing in it is meant to be imported by its bare name

from examples.documents.options import as_arguments, parser  # noqa: E402
from tests.bootstrap import (  # noqa: E402
    ensure_environment,
    replace_process,
    require_python,
    told_in_one_line,
)


def main(arguments: list[str]) -> None:
    """Run `python -m examples.documents` from the repository root with the same arguments."""
    options = parser().parse_args(arguments)  # help and mistakes shall not wait for an installation
    require_python([str(ROOT / "examples"), *arguments])
    with told_in_one_line():
        python = ensure_environment(["binary", "embedded", "asyncio"])
    replace_process([str(python), "-m", "examples.documents", *as_arguments(options)], ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
