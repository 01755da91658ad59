"""What a store promises, whatever database is behind it.

Ops are plain functions `op(tx, …)`: guards first, writes after. One writer runs them one after
another, many in one transaction; an op that raises leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Rows(Protocol):
    """What a statement gave back: tuples in the order of its columns."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Reading(Protocol):
    """A consistent view of what was committed."""

    @property
    def workspace(self) -> str:
        """The workspace that the store belongs to."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Rows:
        """Run one statement with `?` placeholders."""

    def now(self) -> float:
        """The store's clock, in seconds since the epoch."""


class Tx(Reading, Protocol):
    """A transaction that may write; committed as a whole, or not at all."""

    def touch(self, topic: str) -> None:
        """Wake whoever watches `topic`, once this is committed."""

    def emit(
        self,
        type: str,
        data: Mapping[str, Any] | str,
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        actor: str = "",
    ) -> int:
        """Append an event to the audit chain and give its id.

        `data` is an object, or one as canonical JSON text. Touches `events`, and `run:ID` when it
        belongs to an execution.
        """


class Watch(Protocol):
    """Waits for commits that touched one topic; used as a context manager.

    Enter it before reading what it guards: a commit between the two then still wakes it.
    """

    async def changed(self) -> None:
        """Return once a commit touched the topic since this was entered or last returned."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is and holds; `place` is a path or an address without its password.

    `schema` is the last migration applied, `events` the number of the last event, `size` in bytes.
    """

    kind: Literal["sqlite", "postgresql"]
    place: str
    engine: str
    schema: int
    events: int
    size: int


class Store(Protocol):
    """The durable state of one workspace; every method is called from the event loop's thread."""

    @property
    def workspace(self) -> str:
        """The workspace that the store belongs to."""

    async def write(self, op: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `op` and return its result after COMMIT.

        Shielded from cancellation: an op that was handed over finishes, and the cancellation is
        raised after it, so that whoever catches it may rely on the op having run.
        Raises what the op raised, or `StoreUnavailable` when nothing could be committed.
        """

    def post(
        self, op: Callable[Concatenate[Tx, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[object] | None:
        """Queue `op` best effort, in order with every other write; a failure is logged.

        `None` while there is room, and nothing to wait for. When as many ops wait as the store
        allows, this one is queued too and what comes back ends with it and never raises: await it
        to slow down to the store's speed.
        """

    async def flush(self) -> None:
        """Return once everything queued so far was committed or has failed."""

    def read(self, op: Callable[Concatenate[Reading, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short look-up on a connection of its own, in one snapshot of what was committed.

        Raises `StoreUnavailable` when the database cannot be read.
        """

    def snapshot(self) -> AbstractContextManager[Reading]:
        """A view for long reads, such as an export; may be used in a worker thread."""

    def watch(self, topic: str) -> Watch:
        """Wait for commits that touched `topic`: `run:ID`, `approval:ID`, `approvals`,
        `session:ID`, `sessions`, `grants` or `events`."""

    def now(self) -> float:
        """The store's clock, in seconds since the epoch; costs no look at the database."""

    def tell_commits(self, told: Callable[[int, float], None] | None) -> None:
        """Let somebody know of each transaction of the writer: how many ops, and the seconds that it took.

        Called in the writer's thread; `None` ends it.
        """

    @property
    def label(self) -> str:
        """The database in a few words, with its version and without any password."""

    def info(self) -> StoreInfo:
        """What the store is and holds. Raises `StoreUnavailable`."""

    async def close(self) -> None:
        """Commit what is queued and let go of the database; idempotent."""
