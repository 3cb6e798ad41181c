"""A handler's own transaction in the fake world: its statements travel, and its answers get lost, as all others do.

The owner that it asks is the runner's real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue.completion.owner import Completion, Fate
from sa_jobqueue.errors import LeaseLostError
from tests.simulation.store import broken, refused_statement

if TYPE_CHECKING:
    from sa_jobqueue.completion.owner import LeaseOwner
    from tests.simulation.database import Transaction
    from tests.simulation.ledger import Key, Ledger
    from tests.simulation.store import Site


class Block:
    """What `ctx.complete()` is to a handler."""

    def __init__(self, site: Site, ledger: Ledger, owner: LeaseOwner) -> None:
        self._site = site
        self._world = site.world
        self._database = site.database
        self._ledger = ledger
        self._owner = owner

    def run(self, key: Key, *, seconds: float, strict: bool, fails: bool) -> None:
        """The body takes so long and may fail; returns once the COMMIT was answered, raises whatever keeps it from that.

        `strict` holds the renewals, as a stricter isolation level needs it.
        """
        completion = Completion(key)
        self._ledger.claims[key].block = True
        self._owner.begin(completion)
        began_at = self._world.now
        try:
            if strict:
                self._owner.hold_renewals(completion)
            self._world.sleep(seconds)
            if fails:
                raise ValueError("the body fails")
            self._owner.fencing(completion)
            epoch = self._database.epoch
            transaction = self._fence(completion, epoch, began_at)
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

    def _fence(self, completion: Completion, epoch: int, began_at: float) -> Transaction:
        def land() -> Transaction | None:
            return self._database.fence(completion.key, self._site.lease, began_at)

        self._site.travel()
        match self._site.draw():
            case "refused":
                raise refused_statement()
            case "never":
                raise self._in_doubt(completion)
            case "late":
                self._world.call_at(self._site.soon(), land)
                raise self._in_doubt(completion)
            case "lost":
                land()
                raise self._in_doubt(completion)
        while self._database.is_locked(completion.key[0]):
            self._check_connection(completion, epoch)
            self._world.sleep(0.05)
        self._check_connection(completion, epoch)
        transaction = land()
        self._site.travel()
        self._check_connection(completion, epoch)
        if transaction is None:
            completion.fate = Fate.LOST
            raise LeaseLostError("the fence found no job of this token")
        completion.xid = transaction.xid
        self._ledger.claims[completion.key].xid_known = True
        return transaction

    def _commit(self, completion: Completion, transaction: Transaction, epoch: int) -> None:
        self._site.travel()
        match self._site.draw():
            case "refused":
                self._database.roll_back(transaction)
                raise refused_statement()
            case "never":
                # The server sees that the client is gone, or has to find out by its silence.
                if self._world.random.random() < 0.5:
                    self._world.call_at(self._site.soon(), lambda: self._database.roll_back(transaction))
                raise self._in_doubt(completion)
            case "late":
                self._world.call_at(self._site.soon(), lambda: self._database.commit(transaction))
                raise self._in_doubt(completion)
            case "lost":
                self._database.commit(transaction)
                raise self._in_doubt(completion)
        self._check_connection(completion, epoch)
        landed = self._database.commit(transaction)
        self._site.travel()
        self._check_connection(completion, epoch)
        if not landed:
            raise self._in_doubt(completion)
        completion.fate = Fate.LANDED

    def _in_doubt(self, completion: Completion) -> Exception:
        completion.fate = Fate.DOUBTFUL
        return broken()

    def _check_connection(self, completion: Completion, epoch: int) -> None:
        if epoch != self._database.epoch or self._site.away():
            raise self._in_doubt(completion)
