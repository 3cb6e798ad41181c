"""Which PostgreSQL tests and demos use. In this order:

1. the server that `SA_JOBQUEUE_TEST_DATABASE_URL` names (never the application's own DATABASE_URL: databases are
   created and dropped there);
2. programs on this machine, the highest version first;
3. programs inside a Python package (`pip install "sa-jobqueue[embedded]"`);
4. a container, when Docker answers.

`SA_JOBQUEUE_TEST_POSTGRES` = local, wheel or docker chooses one of the last three.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast, get_args

from sqlalchemy import make_url

from sa_jobqueue.testing._binaries import WHEELS, Binaries, local_binaries, wheel_binaries
from sa_jobqueue.testing._cluster import Cluster
from sa_jobqueue.testing._external import IMAGE, ContainerServer, ExternalServer, docker_trouble
from sa_jobqueue.testing.server import OLDEST_MAJOR, PostgresServer, PostgresUnavailableError

Source = Literal["auto", "local", "wheel", "docker"]
URL_VARIABLE = "SA_JOBQUEUE_TEST_DATABASE_URL"
SOURCE_VARIABLE = "SA_JOBQUEUE_TEST_POSTGRES"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A place where a server can come from, found but not started."""

    kind: Literal["url", "local", "wheel", "docker"]
    description: str
    binaries: Binaries | None = None
    url: str | None = None

    def server(self, *, settings: Mapping[str, str] = _NO_SETTINGS, tcp: bool = False) -> PostgresServer:
        """The server, not started yet. `settings` do not reach a server that was named by URL."""
        if self.url is not None:
            return ExternalServer(self.url)
        if self.binaries is not None:
            return Cluster(self.binaries, settings=settings, tcp=tcp)
        return ContainerServer(settings=settings)


def start_postgres(
    source: Source = "auto", *, settings: Mapping[str, str] = _NO_SETTINGS, tcp: bool = False
) -> PostgresServer:
    """Find a PostgreSQL, start it and return it; use it in a `with` statement, or call `stop`.

    Two-phase commits are allowed and commits are durable, unless `settings` (PostgreSQL's own, by name) say
    otherwise. It is reached by a Unix socket; with `tcp` also by a free port of 127.0.0.1.
    Raises PostgresUnavailableError.
    """
    server = find_postgres(source).server(settings=settings, tcp=tcp)
    server.start()
    return server


def find_postgres(source: Source = "auto") -> PostgresSource:
    """Where the server would come from. Raises PostgresUnavailableError, which says what to install."""
    chosen = _chosen(source)
    if chosen == "auto" and (url := os.environ.get(URL_VARIABLE)):
        where = make_url(url).render_as_string(hide_password=True)
        return PostgresSource(kind="url", description=f"{where} (from {URL_VARIABLE})", url=url)
    tried: list[str] = []
    if chosen in {"auto", "local"} and (found := _first(local_binaries(), "on this machine", tried)):
        return PostgresSource(kind="local", description=str(found), binaries=found)
    packages = f"in a Python package ({' or '.join(WHEELS)})"
    if chosen in {"auto", "wheel"} and (found := _first(wheel_binaries(), packages, tried)):
        return PostgresSource(kind="wheel", description=str(found), binaries=found)
    if chosen in {"auto", "docker"}:
        trouble = docker_trouble()
        if trouble is None:
            return PostgresSource(kind="docker", description=f"a container of {IMAGE}")
        tried.append(trouble)
    raise PostgresUnavailableError(_advice(chosen, tried))


def _chosen(source: Source) -> Source:
    chosen = source if source != "auto" else os.environ.get(SOURCE_VARIABLE) or "auto"
    if chosen not in get_args(Source):
        raise PostgresUnavailableError(
            f"{SOURCE_VARIABLE}={chosen} names no source of PostgreSQL: set it to local, wheel or docker, or unset it."
        )
    return cast("Source", chosen)


def _first(found: list[Binaries], where: str, tried: list[str]) -> Binaries | None:
    for binaries in found:
        if binaries.supported:
            return binaries
        tried.append(f"{binaries} is too old")
    if not found:
        tried.append(f"no programs initdb and postgres {where}")
    return None


def _advice(chosen: Source, tried: list[str]) -> str:
    ways = {
        "local": f"install PostgreSQL {OLDEST_MAJOR} or newer, for example: apt-get install postgresql",
        "wheel": 'install the embedded one: pip install "sa-jobqueue[embedded]"',
        "docker": "install testcontainers (pip install testcontainers) and start Docker",
    }
    url = f"name a server for tests: {URL_VARIABLE}=postgresql+psycopg://user:password@host/postgres"
    wanted = (
        [*ways.values(), url]
        if chosen == "auto"
        else [ways[chosen], f"let it be found: unset {SOURCE_VARIABLE}"]
    )
    lines = ["There is no PostgreSQL for tests and demos here.", *(f"  found: {line}" for line in tried)]
    return "\n".join([*lines, "One of these helps:", *(f"  - {line}" for line in wanted)])
