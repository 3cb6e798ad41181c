"""Temporary files in memory, where a machine has room for them there.

A new database is three hundred files: on a disk they cost many times what the database itself does with them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

#: Linux's file system in memory. In a container it is small or without programs unless somebody has asked for more.
MEMORY = Path("/dev/shm")
#: Bytes that several runs side by side have enough of.
ENOUGH = 2 * 2**30


def room_in_memory(folder: Path = MEMORY) -> bool:
    """Whether servers can run there: files may be written, programs be started, and there is space for both."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return False
    may_run = not facts.f_flag & getattr(os, "ST_NOEXEC", 0)
    return may_run and os.access(folder, os.W_OK | os.X_OK) and facts.f_bavail * facts.f_frsize >= ENOUGH


def pytest_configure(config: pytest.Config) -> None:
    """For this process and all that it starts; a TMPDIR that somebody chose is left alone."""
    if "TMPDIR" not in os.environ and room_in_memory():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # it is remembered from the first question on
        config.add_cleanup(_as_before)


def _as_before() -> None:
    del os.environ["TMPDIR"]
    tempfile.tempdir = None
