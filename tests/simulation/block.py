"""A handler's own transaction in the fake world: its statements travel, and its answers get lost, as all others do.

The owner that it asks is the runner's real one; only waiting is the world's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import LeaseLostError
from sa_jobqueue.runner.completing import Completing
from tests.simulation.store import broken, refused_statement

if TYPE_CHECKING:
    from datetime import timedelta

    from sa_jobqueue.runner.book import Book
    from sa_jobqueue.runner.executors.protocol import Execution
    from tests.simulation.database import Database, Transaction
    from tests.simulation.store import Network
    from tests.simulation.world import World


class SimulatedCompleting(Completing):
    """The real owner, whose threads wait in the world."""

    def __init__(
        self,
        world: World,
        book: Book,
        *,
        lease: timedelta,
        renewal_interval: timedelta,
        ask: Callable[[], None],
    ) -> None:
        super().__init__(book, lease=lease, renewal_interval=renewal_interval, ask=ask)
        self._world = world

    def _wait(self, predicate: Callable[[], bool], deadline: float) -> bool:
        while not (held := predicate()) and self._world.now < deadline:
            self._world.sleep(0.05)
        return held


class Block:
    """What `ctx.complete()` is to a handler; `strict` holds the renewals, as a stricter isolation level needs it."""

    def __init__(
        self, world: World, database: Database, network: Network, owner: Completing, *, lease: float
    ) -> None:
        self._world = world
        self._database = database
        self._network = network
        self._owner = owner
        self._lease = lease

    def run(self, execution: Execution, *, seconds: float, strict: bool, fails: bool) -> None:
        """The body takes so long and may fail; returns once the COMMIT was answered, raises whatever keeps it from that."""
        completion = Completion(execution.key)
        self._database.blocks.add(execution.key)
        self._owner.begin(completion)
        try:
            if strict:
                self._owner.hold_renewals(completion)
            self._world.sleep(seconds)
            if fails:
                raise ValueError("the body fails")
            self._owner.fencing(completion)
            epoch = self._database.epoch
            transaction = self._fence(completion, epoch)
            self._commit(completion, transaction, epoch)
        except BaseException as error:
            completion.error = error
            if completion.fate is Fate.OPEN:
                completion.fate = Fate.UNDONE
            raise
        finally:
            if strict:
                self._owner.resume_renewals(completion)
            self._owner.decided(completion)

    def _fence(self, completion: Completion, epoch: int) -> Transaction:
        self._travel()
        match self._network.draw(self._world.random.random()):
            case "refused":
                raise refused_statement()
            case "never":
                raise self._in_doubt(completion)
            case "late":
                self._world.call_at(self._soon(), lambda: self._database.fence(completion.key, self._lease))
                raise self._in_doubt(completion)
            case "lost":
                self._database.fence(completion.key, self._lease)
                raise self._in_doubt(completion)
        while self._database.is_locked(completion.key[0]):
            self._check_connection(completion, epoch)
            self._world.sleep(0.05)
        self._check_connection(completion, epoch)
        transaction = self._database.fence(completion.key, self._lease)
        self._travel()
        self._check_connection(completion, epoch)
        if transaction is None:
            completion.fate = Fate.LOST
            raise LeaseLostError("the fence found no job of this token")
        return transaction

    def _commit(self, completion: Completion, transaction: Transaction, epoch: int) -> None:
        self._travel()
        match self._network.draw(self._world.random.random()):
            case "refused":
                self._database.roll_back(transaction)
                raise refused_statement()
            case "never":
                self._world.call_at(self._soon(), lambda: self._database.roll_back(transaction))
                raise self._in_doubt(completion)
            case "late":
                self._world.call_at(self._soon(), lambda: self._database.commit(transaction))
                raise self._in_doubt(completion)
            case "lost":
                self._database.commit(transaction)
                raise self._in_doubt(completion)
        self._check_connection(completion, epoch)
        landed = self._database.commit(transaction)
        self._travel()
        self._check_connection(completion, epoch)
        if not landed:
            raise self._in_doubt(completion)
        completion.fate = Fate.LANDED

    def _in_doubt(self, completion: Completion) -> Exception:
        completion.fate = Fate.DOUBTFUL
        return broken()

    def _check_connection(self, completion: Completion, epoch: int) -> None:
        if epoch != self._database.epoch or self._world.now < max(
            self._database.down_until, self._network.cut_until
        ):
            raise self._in_doubt(completion)

    def _travel(self) -> None:
        self._world.sleep(self._world.random.random() * 0.02)

    def _soon(self) -> float:
        return self._world.now + self._world.random.random() * self._lease * 0.9
