"""A batch that is refused because of a row is written in pieces, and one that is refused because of everybody is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from sa_jobqueue.store.pieces import PROBES, write_in_pieces


def _writer(
    bad: Callable[[int], bool],
) -> tuple[list[int], Callable[[Sequence[int]], Iterable[tuple[int, int]]]]:
    """Statement sizes so far, and a write that refuses every piece with a bad row in it, as a driver does."""
    sizes: list[int] = []

    def write(piece: Sequence[int]) -> Iterable[tuple[int, int]]:
        sizes.append(len(piece))
        if any(map(bad, piece)):
            raise UnicodeError("a row that can't be sent")
        return enumerate(piece, 1)

    return sizes, write


@pytest.mark.parametrize("bad", [set(), {0}, {999}, {500, 501}, {0, 62, 63, 64, 998, 999}, set(range(40))])
def test_only_the_refused_are_left_out(bad: set[int]) -> None:
    """Wherever the bad rows stand, every other row lands once, under its own position."""
    _, write = _writer(bad.__contains__)
    written = write_in_pieces(write, range(1000))
    assert written.landed == {row: row for row in range(1000) if row not in bad}
    assert set(written.refused) == bad


def test_one_bad_row_costs_few_statements() -> None:
    """A thousand rows, one of them bad: some probes, then halves."""
    sizes, write = _writer({777}.__contains__)
    write_in_pieces(write, range(1000))
    assert len(sizes) <= 1 + PROBES + PROBES + 2 * 7


def test_a_refusal_of_everybody_is_raised_after_a_few_probes() -> None:
    """A broken trigger must not turn one write into thousands of failing statements."""
    sizes, write = _writer(lambda _: True)
    with pytest.raises(UnicodeError):
        write_in_pieces(write, range(1000))
    assert len(sizes) <= 1 + PROBES


def test_a_small_batch_of_bad_rows_is_told_row_by_row() -> None:
    """So few rows may all be bad: each is refused by itself, and nothing is raised."""
    _, write = _writer(lambda _: True)
    written = write_in_pieces(write, range(PROBES))
    assert set(written.refused) == set(range(PROBES))
    assert written.landed == {}


@pytest.mark.parametrize("rows", [1, PROBES, 1000])
def test_what_the_statement_meets_without_a_row_is_raised(rows: int) -> None:
    """A statement that is wrong, or a right that is missing: a batch of few rows must not look like bad rows."""

    def write(piece: Sequence[int]) -> Iterable[tuple[int, int]]:
        raise UnicodeError(f"wrong with {len(piece)} rows")

    with pytest.raises(UnicodeError):
        write_in_pieces(write, range(rows))


def test_where_something_landed_the_statement_is_not_asked_without_a_row() -> None:
    """It works, so that the refused rows are to blame; an empty batch is not sent at all."""
    sizes, write = _writer({1}.__contains__)
    write_in_pieces(write, range(2))
    write_in_pieces(write, [])
    assert sizes == [2, 1, 1]
