"""`python -m examples.documents`: the demo, from the repository root. `python3 examples` gets there from a bare machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.place import given_place, private_place
from examples.documents.demo.story import tell
from examples.documents.demo.trouble import DemoError
from examples.documents.options import parser
from examples.documents.sources import Source, folder, installed

INTRODUCTION = """\
Documents become embeddings, by a job for each, and a runner is killed on the way.
Numbers are answers of the database; the query stands below each of them.\
"""
GO_ON = """
Read on, in this order:
  examples/documents/uploads.py      a job in the transaction that stores its document
  examples/documents/jobs.py         the handler, and how it fails, retries and stores
  examples/documents/migrations/     the queue's table in the application's own Alembic history
Run the same in a database of yours, where everything stays:
  createdb documents
  python3 examples --database-url postgresql://localhost/documents
and with documents of yours:
  python3 examples ~/notes --search "what was decided"\
"""


def main() -> int:
    """Tell the story; the exit code is 0 when all that was checked holds."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _end)
    options = parser().parse_args()
    began = time.monotonic()
    try:
        sources = _sources(options.folder)
    except DemoError as error:
        print(error, file=sys.stderr)
        return 1
    print(INTRODUCTION, flush=True)
    try:
        place = nullcontext(given_place(options.database_url)) if options.database_url else private_place()
        with place as database, Leftovers() as leftovers:
            tell(database, leftovers, sources, question=options.search)
        print(f"\nDone in {time.monotonic() - began:.0f} s.\n{GO_ON}", flush=True)
    except DemoError as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        number = signal.Signals(*stop.args or (signal.SIGINT,))
        rest = (
            "what was stored stays in the database" if options.database_url else "so is the private database"
        )
        print(f"\nStopped by {number.name}; the runner is gone, {rest}.", file=sys.stderr)
        return 128 + number
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _sources(path: Path | None) -> list[Source]:
    found = list(installed() if path is None else folder(path))
    if not found:
        raise DemoError(f"no .txt, .md, .rst or .html files with anything in them below {path}")
    return found


def _end(number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C does: leave through every `with`, so that nothing stays behind."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
