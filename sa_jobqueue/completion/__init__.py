"""Completion in the handler's own transaction: the handler's writes and the job's end, one commit, fenced by the token.

`Completions` is what a runner makes; the rooms are `guard` (what decides), `nets` (the listeners), `blocks` (`with` and
its exit), `own_sessions`, `owner`, where the lease's holder stands, and `loops`, which refuses
sessions of another event loop.
"""

from __future__ import annotations

from sa_jobqueue.completion import loops as _loops  # noqa: F401  # listens
from sa_jobqueue.completion.completions import Completions
from sa_jobqueue.completion.own_sessions import OwnSessions, Sessions

__all__ = ["Completions", "OwnSessions", "Sessions"]
