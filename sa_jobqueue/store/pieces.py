"""A batch that one of its rows spoils is written in pieces: one bad row never holds back its neighbours.

Nothing here knows verbs or columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from sa_jobqueue.store.trouble import because_of_a_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

#: Where so many rows are refused, each alone, the refusal is no single row's fault: a table is missing, a trigger broken.
PROBES = 16


@dataclass(slots=True)
class Written(Generic[AnswerT]):
    """What became of a batch, by position from 0: answers of what landed, errors of what was refused even alone.

    A position in neither was left out by the statement.
    """

    landed: dict[int, AnswerT] = field(default_factory=dict)
    refused: dict[int, Exception] = field(default_factory=dict)


def write_in_pieces(
    write: Callable[[Sequence[ItemT]], Iterable[tuple[int, AnswerT]]], batch: Sequence[ItemT]
) -> Written[AnswerT]:
    """The whole batch in one statement, and only where that is refused because of a row its halves, and so on.

    `write` sends one statement, durable on return, and answers positions from 1 with what landed there. Errors that no
    row can be blamed for pass through: those that say so, what the same statement meets without any row (a right or a
    column is missing, or it is wrong), and a refusal of `PROBES` rows, spread over the batch, each alone. What was written
    before stays written.
    """
    written: Written[AnswerT] = Written()
    pieces = [(0, len(batch))] if batch else []
    probed = len(batch) <= PROBES
    while pieces:
        start, end = pieces.pop()
        error = _write(write, batch, start, end, written)
        if error is None:
            continue
        if end - start == 1:
            written.refused[start] = error
        elif probed:
            middle = (start + end) // 2
            pieces += [(middle, end), (start, middle)]
        else:
            probed = True
            pieces = _probe(write, batch, error, written)
    if written.refused and not written.landed:
        write(batch[:0])  # raises what no row can be blamed for
    return written


def _probe(
    write: Callable[[Sequence[ItemT]], Iterable[tuple[int, AnswerT]]],
    batch: Sequence[ItemT],
    error: Exception,
    written: Written[AnswerT],
) -> list[tuple[int, int]]:
    """Some rows alone, and the pieces between them; raises the batch's own error when all of them are refused."""
    step = -(-len(batch) // PROBES)
    places = range(0, len(batch), step)
    for place in places:
        if (refusal := _write(write, batch, place, place + 1, written)) is not None:
            written.refused[place] = refusal
    if len(written.refused) == len(places):
        raise error
    between = [(place + 1, min(place + step, len(batch))) for place in reversed(places)]
    return [(start, end) for start, end in between if start < end]


def _write(
    write: Callable[[Sequence[ItemT]], Iterable[tuple[int, AnswerT]]],
    batch: Sequence[ItemT],
    start: int,
    end: int,
    written: Written[AnswerT],
) -> Exception | None:
    """One piece in one statement; the error, when one of its rows is to blame."""
    try:
        answers = write(batch[start:end])
    except Exception as error:
        if not because_of_a_row(error):
            raise
        return error
    for position, answer in answers:
        written.landed[start + position - 1] = answer
    return None
