"""What the demo shows: numbered steps, the queries that prove them, and a line of progress."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from itertools import count
from typing import Any

from sqlalchemy import Engine, text

_INDENT = "   "
_SQL_WIDTH = 100
#: Where nobody can watch a line change, a line of progress is written this often, in seconds.
_SELDOM = 2.0


class Terminal:
    """Writes to standard output; a terminal is updated in place, a file or pipe gets whole lines and no more of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = count(1)
        self._live = sys.stdout.isatty()
        self._shown = ""
        self._shown_at = 0.0

    def step(self, title: str) -> None:
        # The first line of progress in a file comes after a while as well.
        self._shown_at = time.monotonic()
        self.say("", indent="")
        self.say(f"{next(self._numbers)}. {title}", indent="")

    def say(self, line: str, *, indent: str = _INDENT) -> None:
        self._clear()
        print(f"{indent}{line}", flush=True)

    def prove(self, what: str, sql: str, **parameters: int | str) -> list[tuple[Any, ...]]:
        """Run a query in a transaction of its own; show its answer and the query, fit for psql; return its rows."""
        with self._engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(text(sql), parameters)]
        for name, value in parameters.items():
            sql = sql.replace(f":{name}", repr(value))
        answers = [" ".join(map(str, row)) for row in rows]
        self.say(f"{what}: {answers[0]}" if len(answers) == 1 else f"{what}:")
        for answer in answers if len(answers) > 1 else []:
            self.say(f"  {answer}")
        for line in textwrap.wrap(f"{sql};", width=_SQL_WIDTH, break_long_words=False):
            self.say(f"      {line}")
        return rows

    def progress(self, line: str) -> None:
        """Show how far it is; the same line isn't shown twice."""
        if line == self._shown:
            return
        if self._live:
            self._clear()
            width = shutil.get_terminal_size().columns - 1
            self._shown = line
            print(f"{_INDENT}{line}"[:width], end="", flush=True)
        elif time.monotonic() - self._shown_at >= _SELDOM:
            self._shown, self._shown_at = line, time.monotonic()
            print(f"{_INDENT}{line}", flush=True)

    def _clear(self) -> None:
        if self._live and self._shown:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1), end="\r")
        self._shown = ""
