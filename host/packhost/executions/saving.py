"""A run's state on its way to the store, and whether it got there."""

from __future__ import annotations

from packhost.errors import StoreUnavailable
from packhost.executions import ops
from packhost.store.base import Tx


class Saving:
    """A state that is written down along with whatever is written next."""

    def __init__(self, run_id: str, owner: str, epoch: int, text: str) -> None:
        self._of = (run_id, owner, epoch, text)
        self._done = False

    def write(self, tx: Tx) -> None:
        """Write it; raises `Conflict` when another holds the run."""
        self._done = False
        ops.save(tx, *self._of)
        self._done = True

    def check(self) -> None:
        """Raises `StoreUnavailable` when it is not written."""
        if not self._done:
            raise StoreUnavailable("what the run would go on from is not written down", hint="call again")
