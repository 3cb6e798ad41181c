"""A table that fits its terminal: each row one line, each cell cut where there is no room, nothing wrapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_jobqueue.cli.output import cut, fit, safe, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title, the least width that it is cut to, and whether its cells are numbers, on the right."""

    title: str
    least: int = 0
    right: bool = False


def lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    paint: Callable[[int, int, str], str] = lambda _row, _column, cell: cell,
) -> Iterator[str]:
    """The title line and one line per row; `paint(row, column, cell)` may colour a cell once it has its width."""
    cells = [[column.title for column in columns], *([safe(cell) for cell in row] for row in rows)]
    widths = [max(width_of(row[index]) for row in cells) for index in range(len(columns))]
    if width is not None:
        _shrink(widths, columns, width)
    for number, row in enumerate(cells):
        yield _line(number - 1, row, columns, widths, paint if number else lambda _row, _column, cell: cell)


def _line(
    number: int,
    row: Sequence[str],
    columns: Sequence[Column],
    widths: Sequence[int],
    paint: Callable[[int, int, str], str],
) -> str:
    shown = [index for index, width in enumerate(widths) if width]
    texts = []
    for index in shown:
        width = widths[index]
        if columns[index].right:
            cell = " " * max(0, width - width_of(row[index])) + cut(row[index], width)
        elif index == shown[-1]:
            cell = cut(row[index], width)
        else:
            cell = fit(row[index], width)
        texts.append(paint(number, index, cell))
    return _GAP.join(texts).rstrip()


def _shrink(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Take from the widest column that may be cut, one column of the terminal at a time; at last leave columns out."""

    def excess() -> int:
        shown = [number for number in widths if number]
        return sum(shown) + len(_GAP) * (len(shown) - 1) - width

    while excess() > 0:
        spare = [
            index for index, column in enumerate(columns) if column.least and widths[index] > column.least
        ]
        if not spare:
            break
        widths[max(spare, key=lambda index: (widths[index], index))] -= 1
    for index in reversed(range(1, len(widths))):
        if excess() <= 0:
            return
        widths[index] = 0
