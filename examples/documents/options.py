"""The command line of the demo. Standard library only: it is read before anything is installed."""

from __future__ import annotations

import argparse
from pathlib import Path

QUESTION = "parse command line arguments"


def parser() -> argparse.ArgumentParser:
    """The options of `python3 examples`."""
    options = argparse.ArgumentParser(
        prog="python3 examples",
        description="Documents become embeddings, by jobs that survive a killed runner. Shows and checks it in half a minute; "
        "the first start, which installs what it needs, takes up to two.",
        epilog="Other examples, without options: python3 examples fastapi, python3 examples flask, python3 examples script. "
        "Exit codes: 0 all checks passed, 1 a check failed or something is missing, 2 usage, 130 Ctrl-C.",
    )
    options.add_argument(
        "folder",
        nargs="?",
        type=_folder,
        metavar="FOLDER",
        help="a folder with .txt, .md, .rst or .html files. Default: the documentation that comes with this Python",
    )
    options.add_argument(
        "--database-url",
        metavar="URL",
        help="an empty database, as postgresql://user:password@host/name; what the demo makes stays there. "
        "Default: a private PostgreSQL that is removed at the end",
    )
    options.add_argument(
        "--search",
        metavar="TEXT",
        default=QUESTION,
        help="what to search for at the end. Default: %(default)s",
    )
    return options


def _folder(text: str) -> Path:
    """A mistyped folder shall not wait for an installation."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is no folder")
    return path


def as_arguments(options: argparse.Namespace) -> list[str]:
    """The options as words for another process, which may run in another folder."""
    words = [f"--search={options.search}"]
    if options.database_url is not None:
        words.append(f"--database-url={options.database_url}")
    return [*words, "--", str(options.folder.resolve())] if options.folder is not None else words
