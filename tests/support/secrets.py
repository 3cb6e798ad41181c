"""A payload and a password that nobody may see, and all that is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECRET, PASSWORD = "S3CR3T-42", "PGPW-42"
PAYLOAD: dict[str, Any] = {"user": 7, "token": SECRET}


class Lines(logging.Handler):
    """Every record as text, with its traceback and whatever else it carries."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.texts.append(f"{logging.Formatter().format(record)} {vars(record)}")

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@contextmanager
def logged(level: int) -> Iterator[Lines]:
    """What all loggers say from this level up. Engines ask for the level when they are made."""
    root, lines = logging.getLogger(), Lines()
    loggers = (root, logging.getLogger("sqlalchemy"))  # which is at WARNING unless somebody says otherwise
    before = [logger.level for logger in loggers]
    root.addHandler(lines)
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        for logger, its_level in zip(loggers, before, strict=True):
            logger.setLevel(its_level)


def assert_hidden(text: str, what: str = "") -> None:
    """Neither of the two is in it."""
    for secret in (SECRET, PASSWORD):
        if secret in text:
            at = text.index(secret)
            raise AssertionError(f"{what}: ...{text[max(0, at - 600) : at + 100]}")
