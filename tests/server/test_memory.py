"""Where temporary files lie: in memory when there is room, where somebody said, or where they always do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import memory


class Config:
    """What pytest offers of its configuration, as far as it is asked."""

    def __init__(self) -> None:
        self.cleanups: list[Callable[[], object]] = []

    def add_cleanup(self, cleanup: Callable[[], object]) -> None:
        self.cleanups.append(cleanup)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the one in memory."""
    monkeypatch.setattr(memory, "room_in_memory", lambda: True)
    monkeypatch.setattr(memory, "MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    return tmp_path


def test_servers_need_a_folder_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has 64 MiB there, and other systems nothing."""
    monkeypatch.setattr(memory, "ENOUGH", 1)
    assert memory.room_in_memory(tmp_path)
    assert not memory.room_in_memory(tmp_path / "nowhere")
    monkeypatch.setattr(memory, "ENOUGH", 2**63)
    assert not memory.room_in_memory(tmp_path)


def test_files_go_there_and_back_again(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time of the run, in other processes too."""
    monkeypatch.delenv("TMPDIR", raising=False)
    config = Config()
    memory.pytest_configure(config)
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(room)
    for cleanup in config.cleanups:
        cleanup()
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() != str(room)


def test_what_somebody_chose_stays(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR of one's own has its reasons."""
    monkeypatch.setenv("TMPDIR", "/chosen")
    config = Config()
    memory.pytest_configure(config)
    assert os.environ["TMPDIR"] == "/chosen"
    assert config.cleanups == []
