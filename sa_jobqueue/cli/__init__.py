"""The command line, the only part that knows click. `cli` is a click group that another one can take in."""

from sa_jobqueue.cli.group import cli, main

__all__ = ["cli", "main"]
