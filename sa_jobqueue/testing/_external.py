"""Servers that run somewhere else: one that somebody named by URL, or one in a container."""

from __future__ import annotations

import gc
import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL, make_url

from sa_jobqueue.testing.server import PostgresServer, PostgresUnavailableError, StopMode, wait_until_ready

IMAGE = "postgres:17"
_USER = "postgres"
_PASSWORD = "postgres"  # noqa: S105 - holds nothing of value, and is gone with the container
_START_PATIENCE = 60.0


class ExternalServer(PostgresServer):
    """A server that is not ours: databases come and go on it, but it is never stopped."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)

    def start(self) -> None:
        version = wait_until_ready(self.url(self._url.database or "postgres"), patience=0)
        self.version = int(version.partition(".")[0])
        self.description = f"PostgreSQL {version} (at {self._url.host or 'its socket'}, given by URL)"

    def halt(self, mode: StopMode = "fast") -> None:
        raise PostgresUnavailableError(
            f"{self.description} is not ours to stop ({mode}): unset the URL of the test server for such tests."
        )

    def stop(self) -> None:
        """Nothing: it was running before us."""

    def url(self, database: str = "postgres", driver: str = "psycopg", *, tcp: bool = False) -> str:
        if tcp and not (self._url.host or "").strip("/"):
            raise PostgresUnavailableError("The URL of the test server names no host.")
        url = self._url.set(drivername=f"postgresql+{driver}", database=database)
        return url.render_as_string(hide_password=False)


class ContainerServer(PostgresServer):
    """A server in a container of its own, by testcontainers."""

    def __init__(self, *, settings: Mapping[str, str]) -> None:
        words = {"max_prepared_transactions": "20", **settings}
        command = ["postgres", *(word for name, value in words.items() for word in ("-c", f"{name}={value}"))]
        self._container: Any = _container_class()(IMAGE, username=_USER, password=_PASSWORD, dbname=_USER)
        self._container.with_command(command)
        self._running = False

    def start(self) -> None:
        if self._running:
            return
        if self._container.get_wrapped_container() is None:
            self._container.start()
        else:
            self._container.get_wrapped_container().start()
        self._running = True
        version = wait_until_ready(self.url(), patience=_START_PATIENCE)
        self.version = int(version.partition(".")[0])
        self.description = f"PostgreSQL {version} (container of {IMAGE})"

    def halt(self, mode: StopMode = "fast") -> None:
        if self._running:
            inner = self._container.get_wrapped_container()
            inner.kill("SIGINT" if mode == "fast" else "SIGQUIT")
            inner.wait()
            self._running = False

    def stop(self) -> None:
        if self._container.get_wrapped_container() is not None:
            self._container.stop()
        self._running = False

    def url(self, database: str = "postgres", driver: str = "psycopg", *, tcp: bool = False) -> str:  # noqa: ARG002 - it is always TCP
        return URL.create(
            f"postgresql+{driver}",
            username=_USER,
            password=_PASSWORD,
            host=self._container.get_container_host_ip(),
            port=int(self._container.get_exposed_port(5432)),
            database=database,
        ).render_as_string(hide_password=False)


def docker_trouble() -> str | None:
    """Why no container can be started; None when Docker answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a failed client leaves its socket to the collector
        trouble = _ping()
        gc.collect()
    return trouble


def _ping() -> str | None:
    try:
        _container_class()
        client = importlib.import_module("testcontainers.core.docker_client").DockerClient().client
        client.ping()
        client.close()
    except ImportError:
        return "the package testcontainers is not installed"
    except Exception as error:  # requests', urllib3's and docker's own errors
        return f"Docker does not answer: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None


def _container_class() -> Any:
    try:
        module = importlib.import_module("testcontainers.community.postgres")
    except ImportError:
        module = importlib.import_module("testcontainers.postgres")
    return module.PostgresContainer
