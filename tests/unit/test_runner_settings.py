"""Settings that can't work are refused where they are set, with the values named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from sa_jobqueue.registry import Registry
from sa_jobqueue.runner import QueueSettings, Runner, RunnerSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queues": {}}, "queues is empty"),
        ({"queues": {"ai": 0}}, r"queues\['ai'\]=0"),
        ({"queues": {"ai": 1.5}}, r"queues\['ai'\]=1.5"),
        ({"queues": {"ai": True}}, r"queues\['ai'\]=True"),
        ({"queues": {"ai": 100_001}}, r"queues\['ai'\]=100001: .* from 1 to 100000"),
        ({"queues": {"a\0i": 1}}, "queues: the character"),
        ({"name": "a\0b"}, "name: the character"),
        ({"lease": timedelta(0)}, "lease=0s: must be from 300ms"),
        ({"lease": timedelta.max}, "lease="),
        ({"poll_interval": timedelta(0)}, "poll_interval=0s: must be from 1ms"),
        ({"poll_interval": timedelta(days=10**6)}, "poll_interval="),
        ({"grace": timedelta(seconds=-1)}, "grace=-1s"),
        ({"rescue_interval": timedelta(0)}, "rescue_interval=0s"),
        ({"prune_interval": timedelta(0)}, "prune_interval=0s: must be from 10ms"),
        ({"timeout": timedelta(0)}, "timeout=0s: must be from 1ms to 366d"),
        ({"timeout": timedelta.max}, "timeout="),
        ({"listen_url": "mysql://host/shop"}, "listen_url: the queue needs PostgreSQL"),
        ({"listen_url": " "}, "listen_url: the database URL is empty"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    """The message names the setting, its value and the bounds."""
    with pytest.raises(ValueError, match=words):
        RunnerSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queues": ["ai"]}, r"queues=\['ai'\]: expected each queue's number"),
        ({"queues": "ai:4"}, "queues='ai:4': expected"),
        ({"queues": ["default"]}, r"queues=\['default'\]: expected"),
        ({"queues": {1: 4}}, "queues: expected a text, got 1"),
        ({"burst": "no"}, "burst='no': must be True or False"),
        ({"listen": 1}, "listen=1: must be True or False"),
        ({"listen_url": 7}, "listen_url: expected a URL, got int"),
        ({"name": 7}, "name: expected a text, got 7"),
    ],
)
def test_what_is_of_another_type_is_refused(settings: dict[str, Any], words: str) -> None:
    """With what was expected, not with whatever a later line happens to say."""
    with pytest.raises(TypeError, match=words):
        RunnerSettings(**settings)


def test_where_it_listens_is_no_secret_that_is_told() -> None:
    """Whoever prints the settings sees the address and no password; any driver's URL will do."""
    settings = RunnerSettings(listen_url="postgresql+asyncpg://app:S3CR3T@host/shop")
    assert "S3CR3T" not in repr(settings)
    assert "postgresql+psycopg://app:***@host/shop" in repr(settings)


def test_what_is_independent_may_differ_by_as_much_as_one_likes() -> None:
    """A runner that looks rarely keeps short leases all the same; a timeout may be shorter or longer than a lease."""
    day, second = timedelta(days=1), timedelta(seconds=1)
    RunnerSettings(lease=second, poll_interval=day, rescue_interval=day, grace=day, timeout=day)
    RunnerSettings(
        lease=day, poll_interval=second, rescue_interval=second, grace=timedelta(0), timeout=second
    )


@pytest.mark.parametrize("name", ["lease", "poll_interval", "grace", "rescue_interval", "timeout"])
def test_a_bare_number_is_refused(name: str) -> None:
    """Nobody can tell seconds from milliseconds; the advice says how to."""
    changes: dict[str, Any] = {name: 30}
    with pytest.raises(TypeError, match=rf"{name}=30: .*write timedelta\(seconds="):
        RunnerSettings(**changes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurrency": 0}, r"QueueSettings\(concurrency=0\)"),
        ({"concurrency": "4"}, "concurrency='4'"),
        ({"executor": "gevent"}, "executor='gevent'.*there is thread or asyncio"),
    ],
)
def test_a_queue_that_cannot_be_served_so_is_refused(settings: dict[str, Any], words: str) -> None:
    """Where it is set, naming the value and what there is."""
    with pytest.raises(ValueError, match=words):
        QueueSettings(**settings)


def test_a_queue_may_be_a_number_or_settings() -> None:
    """Both say how many handlers run at once; the executor is left open by a number."""
    settings = RunnerSettings(queues={"ai": QueueSettings(200, executor="asyncio"), "mail": 10})
    assert settings.limits == {"ai": 200, "mail": 10}
    assert (settings.executor("ai"), settings.executor("mail")) == ("asyncio", None)


def test_a_renewal_is_due_every_third_of_a_lease() -> None:
    """Two renewals in a row may fail before a lease ends."""
    assert RunnerSettings(lease=timedelta(minutes=2)).renewal_interval == timedelta(seconds=40)


@pytest.mark.parametrize(
    ("lease", "deadline"), [(0.3, 5), (15, 5), (30, 10), (120, 40), (180, 60), (86_400, 60)]
)
def test_a_statement_has_a_third_of_the_lease(lease: float, deadline: float) -> None:
    """But no less than a server may stall, and no more than a loop may be idle."""
    assert RunnerSettings(lease=timedelta(seconds=lease)).statement_deadline == timedelta(seconds=deadline)


def test_what_a_runner_is_made_of_is_checked() -> None:
    """Two registries, or the arguments the other way round, are told before anything starts."""
    jobs, url = Registry(), "postgresql://u@h/d"
    wrong: list[tuple[Any, Any, str]] = [
        ([jobs], url, r"expected a Registry first, got list; .* registry\.include\(other\)"),
        (url, jobs, "expected a Registry first, got str"),
        (jobs, None, "expected the database second, as a URL or an Engine, got NoneType"),
        (jobs, jobs, "expected the database second, .* got Registry"),
    ]
    for registry, database, words in wrong:
        with pytest.raises(TypeError, match=words):
            Runner(registry, database)
    anything: Any = {"queues": {"default": 1}}
    with pytest.raises(TypeError, match=r"expected RunnerSettings\(\.\.\.\) third, got dict"):
        Runner(jobs, url, anything)


@pytest.mark.parametrize("make", [create_engine, create_async_engine])
def test_an_engine_of_either_kind_lends_its_url(make: Any) -> None:
    """An application on asyncio has no other."""
    engine = make("postgresql+psycopg://u:p@h/d")
    assert Runner(Registry(), engine)._url == engine.url
