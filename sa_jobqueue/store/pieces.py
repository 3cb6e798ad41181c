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
    row can be blamed for pass through; pieces that were written before stay written.
    """
    written: Written[AnswerT] = Written()
    pieces = [(0, len(batch))] if batch else []
    while pieces:
        start, end = pieces.pop()
        try:
            answers = write(batch[start:end])
        except Exception as error:
            if not because_of_a_row(error):
                raise
            if end - start == 1:
                written.refused[start] = error
            else:
                middle = (start + end) // 2
                pieces += [(middle, end), (start, middle)]
        else:
            for position, answer in answers:
                written.landed[start + position - 1] = answer
    return written
