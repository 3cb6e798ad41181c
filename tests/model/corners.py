"""Histories written down: what random ones come to seldom, and what they have found once.

A step is what Hypothesis prints of a failure, the argument of `then`.
"""

from __future__ import annotations

from typing import Any

from tests.model.rows import TARGETS

Step = tuple[str, dict[str, Any]]


def _job(
    *, due: int | None = None, expires: int | None = None, attempts: int = 1, key: str | None = None
) -> tuple[Any, ...]:
    return ("a", "p", 5, due, expires, attempts, key)


def _enqueue(*wanted: tuple[Any, ...], way: str = "many") -> Step:
    return "enqueue", {"wanted": list(wanted), "way": way}


def _claim(lease: int = 2) -> Step:
    return "claim_all", {"lease": lease}


def _settle(verb: str, fate: str = "answered", delay: int | None = None) -> Step:
    return "settle", {"outcomes": [(0, 0, verb, delay, "a")], "fate": fate}


def _wait(minutes: int) -> Step:
    return "time_passes", {"minutes": minutes}


def _rescue_found(*, past: int = 0, margin: int = 0) -> Step:
    return "rescue_found", {"delay": 0, "past": past, "margin": margin, "limit": 9}


def _rescue_known(*, age: int, margin: int = 0) -> Step:
    return "rescue_known", {"key": (0, age), "delay": 0, "margin": margin}


def _reschedule(row: int, due: int | None) -> Step:
    return "reschedule", {"rows": [row], "due": due, "relative": False, "priority": 0}


def _report(age: int) -> Step:
    return "report", {"keys": [(0, age)], "tenths": 5, "said": "a"}


def _prune(status: str, *, age: int = 0, limit: int = 9) -> Step:
    return "prune", {"status": status, "age": age, "limit": limit, "by_person": False}


_BEGIN: Step = ("lock", {"rows": [], "strength": "row"})
_FENCE: Step = ("fence", {"key": (0, 0), "result": None, "lease": 1})
_COMMIT: Step = ("end", {"commit": True})
_AGAIN: Step = ("settle_again", {"which": 0})
_CANCEL: Step = ("cancel", {"rows": [0]})
_REDRIVE: Step = ("redrive", {"rows": [0]})
_LOSE_CLAIM: Step = ("claim", {"quotas": (1, 1), "kinds": "ab", "lease": 2, "fate": "lost"})

CORNERS: dict[str, list[Step]] = {
    "a lease ends while a transaction is open": [
        *(_enqueue(_job()), _claim(2), _BEGIN, _wait(2)),
        *(_settle("complete", "in flight"), _FENCE, _COMMIT),
    ],
    "the answers of claims are lost until the job is dead": [
        *(_enqueue(_job(attempts=1)), _LOSE_CLAIM, ("release_claim", {"which": 0})),
        *(_LOSE_CLAIM, ("release_claim", {"which": 1})),
    ],
    "a completion is pruned before anybody has heard of it": [
        *(_enqueue(_job()), _claim(), _FENCE, _COMMIT, _wait(1), _prune("done"), _AGAIN),
    ],
    "another verb lands instead of a completion": [
        *(_enqueue(_job()), _claim(), _settle("complete", "never"), _settle("retry"), _AGAIN),
    ],
    "a dead job is left alone until it is redriven or old": [
        *(_enqueue(_job(), _job(due=1)), _claim(), _settle("retry"), ("cancel", {"rows": [4]})),
        *(_reschedule(4, 0), _wait(1), _prune("dead", age=2), _REDRIVE, _claim(), _reschedule(4, 0)),
    ],
    "a running job is cancelled, twice, and its runner retries": [
        *(_enqueue(_job(attempts=2)), _claim(), _CANCEL, _wait(1), _CANCEL, _settle("retry"), _REDRIVE),
    ],
    "a job would be due after it has expired": [
        *(_enqueue(_job(due=1, expires=3)), _wait(2), _reschedule(0, 2), _reschedule(0, 0)),
    ],
    "a key is let go by a rescue and by a cancellation": [
        *(_enqueue(_job(key="x"), way="unfinished"), _claim(1), _wait(2), _rescue_found()),
        *(_enqueue(_job(key="x")), _REDRIVE, _enqueue(_job(key="y"), way="unfinished"), _CANCEL),
        *(("cancel", {"rows": [2]}), ("redrive", {"rows": [1]})),
    ],
    "a lease is judged by an old look": [
        *(_enqueue(_job(attempts=3)), _claim(1), _wait(2), _rescue_found(), _claim(1), _wait(2)),
        *(_rescue_known(age=1), _rescue_found(past=1), _rescue_known(age=0, margin=1)),
        *(("renew", {"keys": [(0, 0)], "lease": 1, "in_flight": False}), _rescue_known(age=0)),
    ],
    "whoever was the owner before says what he likes": [
        *(_enqueue(_job(attempts=3)), _claim(), _settle("release"), _claim()),
        *(("settle_late", {"outcome": (0, 1, verb, None, "a")}) for verb in TARGETS),
        *(("renew", {"keys": [(0, 1)], "lease": 9, "in_flight": False}), _report(1)),
    ],
    "all that is asked to end is cancelled by what it does next": [
        *(_enqueue(_job(key="x"), _job(), _job(), _job(), way="unfinished"), _claim(1)),
        *(("cancel", {"rows": [0, 1]}), ("cancel", {"rows": [2, 3]}), _settle("snooze")),
        *(_settle("discard"), _settle("release"), _wait(2), _rescue_found()),
    ],
    "a foreign key points at a job": [
        *(_enqueue(_job()), ("lock", {"rows": [0], "strength": "key share"}), _claim(), _settle("retry")),
        *(_wait(1), _prune("dead"), _COMMIT, _prune("dead")),
    ],
    "a row is locked": [
        *(_enqueue(_job(), _job(due=1)), _claim(1), ("lock", {"rows": [0, 1], "strength": "row"})),
        *(*map(_settle, TARGETS), _wait(2), _rescue_known(age=0), _claim(), _report(0)),
        *(("renew", {"keys": [(0, 0)], "lease": 9, "in_flight": False}), _COMMIT, _settle("complete")),
    ],
    "a job that runs is not rescheduled, one that waits is cancelled and redriven": [
        *(_enqueue(_job(), _job(due=1, expires=6)), _claim(), _reschedule(4, 0)),
        *(("cancel", {"rows": [4]}), _REDRIVE),
    ],
    "an attempt is given back, and the next one is not the last": [
        *(_enqueue(_job(attempts=2)), _claim(), _settle("release"), _claim(), _settle("retry", delay=3)),
        *(_reschedule(0, 0), _claim(), _settle("retry")),
    ],
    "keys are let go by whoever ends their jobs": [
        *(_enqueue(_job(key="x"), _job(key="y"), _job(key="z"), way="unfinished"), _claim()),
        *(_settle("retry"), _settle("complete"), _FENCE, _COMMIT),
        _enqueue(_job(key="z"), _job(key="y"), _job(key="x"), _job(key="x")),
    ],
    "a job that waited long is given back": [
        *(_enqueue(_job(due=-1, attempts=2)), _claim(), _settle("release"), _claim(), _settle("snooze")),
    ],
    "jobs finish one after the other and are pruned one by one": [
        *(_enqueue(_job(), _job()), _claim(), _settle("complete"), _wait(1), _settle("complete")),
        *(_wait(1), _prune("done", limit=1)),
    ],
}
