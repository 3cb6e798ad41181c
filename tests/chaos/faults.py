"""What breaks: one function for each kind, which strikes, and returns when the fault is over.

Another kind is another function with `@fault`. Victims and durations come from `chance`, so that a seed is a plan.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random

import psycopg

from sa_jobqueue.testing import PostgresServer, StopMode
from tests.chaos.fleet import DEADLINE, LEASE, Fleet
from tests.chaos.watch import NAME, Watch, connect
from tests.support.proxy import Proxy

DATABASE = "chaos"
_SESSIONS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> %(name)s"


@dataclass
class World:
    """All that can break. A fault lasts up to `longest` seconds, or what it takes to outlast a lease or a deadline."""

    server: PostgresServer
    url: str
    proxy: Proxy
    fleet: Fleet
    watch: Watch
    longest: float
    #: Of two faults at once only one may be about the server.
    server_lock: threading.Lock = field(default_factory=threading.Lock)

    def last(self, chance: Random, *, least: float = 0.2) -> None:
        """Let the fault last."""
        time.sleep(least + chance.random() * self.longest)

    def terminate(self, share: float = 1.0) -> None:
        """End sessions, but for the driver's own."""
        self.watch.rows(
            f"SELECT pg_terminate_backend(pid) {_SESSIONS} AND random() < %(share)s",
            {"name": NAME, "share": share},
        )


Fault = Callable[[World, Random], None]
FAULTS: dict[str, Fault] = {}
#: While these last, the database can't be written to by some runner or all.
OUTAGES: set[str] = set()


def fault(name: str, *, outage: bool = False) -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[name] = function
        if outage:
            OUTAGES.add(name)
        return function

    return register


@fault("kill -9")
def kill(world: World, chance: Random) -> None:
    world.fleet.one(chance).kill()


@fault("kill -9 of all")
def kill_all(world: World, chance: Random) -> None:
    for member in world.fleet.members:
        member.kill()


@fault("SIGTERM")
def deploy(world: World, chance: Random) -> None:
    world.fleet.one(chance).deploy()


@fault("SIGSTOP")
def pause(world: World, chance: Random) -> None:
    """Beyond the lease: others take the jobs, and what comes after SIGCONT is late."""
    member = world.fleet.one(chance)
    member.send(signal.SIGSTOP)
    world.last(chance, least=LEASE * 1.5)
    member.send(signal.SIGCONT)


@fault("sessions ended")
def terminate(world: World, chance: Random) -> None:
    world.terminate(chance.choice([0.1, 0.5, 1.0]))


@fault("backends stopped", outage=True)
def stall(world: World, chance: Random) -> None:
    """Half of the sessions stop in the midst of what they do and go on later: what was given up may still land."""
    if world.server.bin_folder is None:
        return  # its processes have other numbers here
    with world.server_lock, ExitStack() as stopped:
        for (pid,) in world.watch.rows(f"SELECT pid {_SESSIONS} AND random() < 0.5", {"name": NAME}):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.callback(_go_on, pid)
        world.last(chance, least=DEADLINE)


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fault("restart, fast", outage=True)
def restart_fast(world: World, chance: Random) -> None:
    _restart(world, chance, "fast")


@fault("restart, immediate", outage=True)
def restart_immediate(world: World, chance: Random) -> None:
    _restart(world, chance, "immediate")


def _restart(world: World, chance: Random, mode: StopMode) -> None:
    with world.server_lock:
        world.server.halt(mode)
        world.last(chance)
        world.server.start()


@fault("read-only", outage=True)
def read_only(world: World, chance: Random) -> None:
    """As during a failover: the server lets everybody in and refuses what they write, for as long as they stay."""
    with world.server_lock:
        world.watch.rows(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
        world.terminate()
        world.last(chance)
        world.watch.rows(f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only")


@fault("too many clients", outage=True)
def crowd(world: World, chance: Random) -> None:
    """All places are taken, by somebody who is faster whenever one becomes free; who got one all the same loses it."""
    with world.server_lock, ExitStack() as places:
        world.watch.rows("SELECT")  # it may have lost its connection, and would find no place for another
        ends_at: float | None = None
        while ends_at is None or time.monotonic() < ends_at:
            try:
                places.enter_context(connect(world.url))
            except psycopg.OperationalError:
                world.terminate()
                ends_at = ends_at or time.monotonic() + 0.5 + chance.random() * world.longest


@fault("black hole", outage=True)
def black_hole(world: World, chance: Random) -> None:
    """Nothing gets through and nothing breaks, for longer than a statement is waited for; then what was cut off breaks."""
    with world.proxy.mute():
        world.last(chance, least=DEADLINE)
    with world.proxy.unreachable():
        pass


@fault("half-open connections")
def half_open(world: World, chance: Random) -> None:
    """What is open goes silent, what is new works; in the end what is silent breaks, as TCP sees to it."""
    with world.proxy.mute():
        pass
    world.last(chance, least=LEASE)
    with world.proxy.unreachable():
        pass


@fault("unreachable", outage=True)
def unreachable(world: World, chance: Random) -> None:
    with world.proxy.unreachable():
        world.last(chance)


@fault("rows locked")
def lock_rows(world: World, chance: Random) -> None:
    """An application holds some jobs for longer than their lease."""
    with suppress(psycopg.OperationalError), connect(world.url) as connection, connection.transaction():
        connection.execute(
            "SELECT FROM jobqueue_jobs WHERE status IN ('ready', 'running') ORDER BY random() LIMIT 20 FOR UPDATE"
        )
        world.last(chance, least=LEASE)


@fault("table locked", outage=True)
def lock_table(world: World, chance: Random) -> None:
    """As DDL does."""
    with suppress(psycopg.OperationalError), connect(world.url) as connection, connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '5s'")
        connection.execute("LOCK TABLE jobqueue_jobs")
        world.last(chance)
