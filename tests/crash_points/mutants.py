"""Faults built into the library, one at a time, in processes that end with it: the crash points must find each."""

from __future__ import annotations

from collections.abc import Callable

MUTANTS: dict[str, Callable[[], None]] = {}
