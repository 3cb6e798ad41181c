"""What registries provide to handlers beside the payload: it is no field, and a run gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import PROVIDED, ConfigurationError, JobContext, PayloadError, Registry
from sa_jobqueue.runner import Runner
from tests.support.handlers import CONTEXT


class Client:
    """Something that is made once and used by many runs."""


class Better(Client):
    """A client too."""


@dataclass
class Settings:
    url: str


def test_a_type_that_no_payload_holds_is_told_at_registration() -> None:
    """With both ways out."""

    def handler(ctx: JobContext, client: Client) -> None: ...

    text = r"handler\('k'\): 'client' of .*handler: .*Client is no type.*jobs\.provide\(Client, \.\.\.\).*PROVIDED"
    with pytest.raises(TypeError, match=text):
        Registry().handler("k")(handler)


def test_a_provided_type_is_no_field() -> None:
    """It is left out of the call, refused there, and filled in by the run."""
    registry = Registry()
    registry.provide(Client, client := Better())

    @registry.handler("k")
    def handler(ctx: JobContext, client: Client, item: int) -> Any:
        return client, item

    assert handler.call(item=1).payload == {"item": 1}  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert handler.bind(CONTEXT, {"item": 1})() == (client, 1)
    with pytest.raises(TypeError, match="'client'"):
        handler.call(item=1, client=client)
    with pytest.raises(PayloadError, match="has 'client'"):
        handler.bind(CONTEXT, {"item": 1, "client": 1})


def test_a_factory_is_called_once_when_a_run_first_needs_it() -> None:
    """And again only when it has failed."""
    registry, made = Registry(), []

    def make() -> Client:
        made.append(Client())
        if len(made) == 1:
            raise OSError("not there yet")
        return made[-1]

    registry.provide(Client, factory=make)

    @registry.handler("k")
    def handler(client: Client = PROVIDED) -> Client:
        return client

    assert handler.call().payload == {}
    assert made == []
    with pytest.raises(OSError, match="not there yet"):
        handler.bind(CONTEXT, {})
    assert handler.bind(CONTEXT, {})() is handler.bind(CONTEXT, {})() is made[1]
    assert len(made) == 2


def test_a_factory_that_needs_what_it_is_to_make_is_told() -> None:
    """It would wait for itself for ever."""
    registry = Registry()

    @registry.handler("k")
    def handler(client: Client = PROVIDED) -> Client:
        return client

    def make() -> Client:
        made: Client = handler.bind(CONTEXT, {})()
        return made

    registry.provide(Client, factory=make)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"provide\(Client\): its factory needs what it is to make"):
            handler.bind(CONTEXT, {})


def test_a_registry_that_includes_another_provides_for_it() -> None:
    """`PROVIDED` says that somebody will; until somebody does, a runner does not start."""
    inner, outer = Registry(), Registry()

    @inner.handler("k")
    def handler(settings: Settings = PROVIDED) -> Settings:
        return settings

    text = r"handler\('k'\): nobody provides 'settings' of .*handler: jobs\.provide\(Settings, \.\.\.\)"
    outer.include(inner)
    with pytest.raises(ConfigurationError, match=text):
        outer.check()
    outer.provide(Settings, Settings("url"))
    outer.check()
    assert handler.bind(CONTEXT, {})() == Settings("url")
    inner.provide(Settings, Settings("own"))
    assert handler.bind(CONTEXT, {})() == Settings("own")


def test_what_a_test_gives_stands_in() -> None:
    """For one run, whatever its type."""
    registry = Registry()
    registry.provide(Client, Client())

    @registry.handler("k")
    def handler(client: Client) -> Any:
        return client

    assert handler.bind(CONTEXT, {}, {Client: "fake"})() == "fake"


def test_what_stands_beside_a_provided_type_is_no_matter() -> None:
    """Unless it is provided with that."""
    registry = Registry()
    registry.provide(Client, client := Client())
    registry.provide(Annotated[Client, "better"], better := Better())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    registry.provide(Words, words := {"a": "b"})  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

    @registry.handler("k")
    def handler(
        one: Annotated[Client, "a note"], two: Annotated[Client, "better"] | None, words: Words
    ) -> Any:
        return one, two, words

    assert handler.bind(CONTEXT, {})() == (client, better, words)


class Words(TypedDict):
    a: str


def test_registries_may_include_each_other() -> None:
    """And themselves."""
    one, two = Registry(), Registry()

    @one.handler("k")
    def handler(client: Client = PROVIDED) -> Client:
        return client

    for registry, other in ((one, one), (one, two), (two, one), (one, two)):
        registry.include(other)
    with pytest.raises(ConfigurationError, match="nobody provides 'client'"):
        two.check()
    two.provide(Client, client := Client())
    one.check()
    assert handler.bind(CONTEXT, {})() is client


def test_wrong_providers_are_refused() -> None:
    """Where they are provided."""
    registry = Registry()
    with pytest.raises(TypeError, match=r"provide\(Client\): got str, which is no Client"):
        registry.provide(Client, "client")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"provide\(Client\): pass the value, or factory="):
        registry.provide(Client)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="factory: expected a function"):
        registry.provide(Client, factory=Client())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    registry.provide(Client, factory=lambda: "client")  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"provide\(Client\): it is provided already"):
        registry.provide(Client, Client())

    @registry.handler("k")
    def handler(client: Client, settings: Settings) -> Any: ...

    with pytest.raises(TypeError, match="the factory made str, which is no Client"):
        handler.bind(CONTEXT, {"settings": {"url": ""}})
    with pytest.raises(ValueError, match="'settings' of the handler of 'k' is a field of its payload"):
        registry.provide(Settings, Settings(""))


def test_a_session_factory_is_provided_with_or_without_its_parameter() -> None:
    """And where None would do as well."""
    registry = Registry()
    registry.provide(sessionmaker, sessions := sessionmaker())

    @registry.handler("k")
    def handler(first: sessionmaker[Session], second: sessionmaker[Session] | None = PROVIDED) -> Any:
        return first, second

    assert handler.bind(CONTEXT, {})() == (sessions, sessions)


def test_a_runner_does_not_start_without_what_its_handlers_take() -> None:
    """Before it talks to the database: each job would fail."""
    registry = Registry()

    @registry.handler("k")
    def handler(client: Client = PROVIDED) -> None: ...

    runner = Runner(registry, "postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(ConfigurationError, match=r"nobody provides 'client' of .*jobs\.provide\(Client, "):
        runner.start()
