"""The model. A small deterministic one stands in for a real one: to swap it, change the line `MODEL = ...`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

Vector = list[float]

_WORD = re.compile(r"[a-z][a-z0-9]+|\d{2,}")
_TOO_COMMON = re.compile(
    "all|also|and?|any|are|as|at|be|been|but|by|can|do|for|from|has|have|if|in|into|is|its?|may|more|no|not|of|on|one|"
    "only|or|other|see|so|some|such|that|the|their|then|there|these|they|this|to|use|used|using|was|when|which|will|"
    "with|your?"
)


class Model(Protocol):
    """What the application asks of a model."""

    version: str

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector of length 1 for each text; the same text gives the same vector as long as the version stays."""
        ...


class HashingModel:
    """Feature hashing: every word and every four letters in a row add to a coordinate that a hash chooses.

    A stand-in for a trained model: it needs no download and finds texts with the same or similar words, but knows
    nothing of their meaning.
    """

    def __init__(self, dimensions: int = 512) -> None:
        self.version = f"hashing-{dimensions}-v1"
        self._dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Vector:
        vector = [0.0] * self._dimensions
        words = Counter(word for word in _WORD.findall(text.lower()) if not _TOO_COMMON.fullmatch(word))
        for word, count in words.items():
            for number, weight in _features(word):
                sign = 1.0 if number & 1 else -1.0
                vector[(number >> 1) % self._dimensions] += sign * weight * (1 + math.log(count))
        return _unit(vector)


MODEL: Model = HashingModel()


def average(vectors: Sequence[Vector]) -> Vector:
    """The mean of some vectors, made of length 1: one vector for a text of several chunks."""
    return _unit([sum(coordinates) / len(vectors) for coordinates in zip(*vectors, strict=True)])


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(coordinate * coordinate for coordinate in vector))
    return [coordinate / length for coordinate in vector] if length else vector


@lru_cache(maxsize=50_000)
def _features(word: str) -> tuple[tuple[int, float], ...]:
    """The word itself, and its parts, which "parse" and "parsing" have in common; all parts weigh as much as the word."""
    parts = list(_parts(word))
    return (_number(word), 1.0), *((_number(part), 1 / math.sqrt(len(parts))) for part in parts)


def _parts(word: str) -> Iterator[str]:
    framed = f"<{word}>"
    return (framed[start : start + 4] for start in range(max(len(framed) - 3, 1)))


def _number(feature: str) -> int:
    # Python's own hash() differs from process to process.
    return int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "big")
