"""The command in a process that was started without standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
URL = "postgresql://user@db.example/app"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-m", "sa_jobqueue", "run", "nowhere:jobs", "--database-url", URL), 2),
        (("-c", "from sa_jobqueue.cli.exits import exit_hard; exit_hard(7)"), 7),
    ],
)
def test_a_process_without_its_streams_ends_with_its_code(
    closed: str, arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """As some supervisors start one: Python has None there, and the code is all that is told."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == code
