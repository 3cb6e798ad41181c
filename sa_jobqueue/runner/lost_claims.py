"""Claims whose answer is missing: what they may have taken is given back by their token alone.

Such a claim may have landed, may land late, or never. Its answer is ignored for ever; its release is repeated every
renewal interval until one lease after its connection was dropped, and in any case until the database has answered
one. Pure values; the dispatcher sends them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class LostClaim:
    """The `token` of one claim, due for a release at `due`; an answer at or after `until` was the last one needed."""

    token: UUID
    until: float
    due: float
    answered: bool = False


def after_answer(
    lost: Iterable[LostClaim], token: UUID, *, now: float, interval: float
) -> tuple[LostClaim, ...]:
    """The release of this token has landed, whatever it found."""
    return tuple(
        replace(claim, due=now + interval, answered=True) if claim.token == token else claim
        for claim in lost
        if claim.token != token or now < claim.until
    )


def after_failure(lost: Iterable[LostClaim], token: UUID, *, due: float) -> tuple[LostClaim, ...]:
    """The release of this token failed: it is harmless to send it again."""
    return tuple(replace(claim, due=due) if claim.token == token else claim for claim in lost)


def at_the_end(lost: Iterable[LostClaim], *, now: float) -> tuple[LostClaim, ...]:
    """The runner ends: each is released once more, at once; what lands later is left to its lease."""
    return tuple(replace(claim, until=now, due=now) for claim in lost)
