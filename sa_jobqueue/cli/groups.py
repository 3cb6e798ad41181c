"""Groups of commands that know where a command stands that somebody looks for in the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


class Group(click.Group):
    """A group whose refusal of a command names the same command elsewhere: `list` is `jobs list`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            root = ctx.find_root()
            for path in _paths(root.command):
                if path.split()[-1] == args[0]:
                    ctx.fail(f"No such command {args[0]!r}. Did you mean '{root.info_name} {path}'?")
            raise


def _paths(command: click.Command, above: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield above + name
            yield from _paths(inner, f"{above}{name} ")
