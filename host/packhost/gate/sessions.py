"""Sessions as the gate reads them: who owns one, and how much autonomy it has now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from packhost.errors import InvalidInput, NotFound, PackhostError, StoreUnavailable
from packhost.gate.configuration import Autonomy
from packhost.gate.context import GateContext
from packhost.kinds.context import CallContext, SessionView
from packhost.names import SESSION_ID
from packhost.rules.autonomy import Level, lowest, opening, raise_allowed, rank
from packhost.store.base import Reading, Store
from packhost.store.ops import sessions
from packhost.store.rows import SessionRow


class Sessions:
    """Sessions of this workspace; rows are kept in memory until `forget`."""

    def __init__(self, store: Store, autonomy: Callable[[], Autonomy]) -> None:
        self._store = store
        self._autonomy = autonomy
        self._rows: dict[str, SessionRow] = {}

    async def enter(self, session_id: str, principal: str, client: str, opener: str | None = None) -> str:
        """The session of that name, opened at its first mention; its id.

        :raises InvalidInput: when the name is not `[A-Za-z0-9._-]{1,64}`.
        :raises NotFound: when it belongs to another principal or client.
        """
        row = self._rows.get(session_id)
        if row is None:
            _check_name(session_id)
            autonomy = self._autonomy()
            above = self.level(opener) if opener is not None else None
            level = opening(autonomy.default, above, autonomy.maximum)
            row = await self._store.write(sessions.open, session_id, principal, client, level, opener)
            self._rows[session_id] = row
        else:
            _check_owner(row, principal, client)
        return session_id

    def look(self, session_id: str, principal: str, client: str) -> str:
        """The session of that name, or of none yet, as `enter` takes it; opens none.

        :raises InvalidInput: as `enter` does.
        :raises NotFound: as `enter` does.
        """
        _check_name(session_id)
        row = self.known(session_id)
        if row is not None:
            _check_owner(row, principal, client)
        return session_id

    async def greet(self, session_id: str, principal: str, client: str) -> None:
        """`enter`, and no obstacle while the store cannot be written: without its intent only a read runs."""
        with suppress(StoreUnavailable):
            await self.enter(session_id, principal, client)

    def level(self, session_id: str) -> Level:
        """The level that holds now, never past the maximum; that of a new session when it is unknown."""
        row = self.known(session_id)
        if row is None:
            autonomy = self._autonomy()
            return opening(autonomy.default, None, autonomy.maximum)
        return lowest(self._held(row), self._autonomy().maximum)

    def _held(self, row: SessionRow) -> Level:
        """A session's own level now, and no higher than an opener's whose raise is over.

        That it is over lowers what was opened from it from that moment, not from when it is written down.
        """
        if row.level_before is None and row.parent is None:
            return row.level
        now, held, above = self._now(), row.level, row.parent
        if row.level_before is not None:
            held = row.level_at(now)
        seen = {row.id}
        while above is not None and above not in seen:
            seen.add(above)
            opener = self.known(above)
            if opener is None:
                break
            if opener.level_expires_at is not None and opener.level_expires_at <= now:
                held = lowest(held, opener.level_at(now))
            above = opener.parent
        return held

    def _now(self) -> float:
        return self._store.now()

    async def fall_back(self) -> None:
        """Write down each raise that is over; cheap when none is."""
        if self._store.read(lambda tx: sessions.due(tx, tx.now())):
            await self._store.write(sessions.fall_back)
            self._rows.clear()

    def forget(self) -> None:
        """Read every session anew when it is next asked for."""
        self._rows.clear()

    def _load(self, session_id: str) -> SessionRow | None:
        row = self._store.read(sessions.find, session_id)
        if row is not None:
            self._rows[session_id] = row
        return row

    def known(self, session_id: str) -> SessionRow | None:
        """A session as it was last read or written here: whose it is never changes, its level may have.

        `None` when it was never mentioned.
        """
        return self._rows.get(session_id) or self._load(session_id)

    def row(self, session_id: str) -> SessionRow:
        """As `known`.

        :raises NotFound: when it was never mentioned.
        """
        return _found(self.known(session_id), session_id)

    def view(self, session_id: str) -> SessionView:
        """A session's level and when it ends, read anew.

        :raises NotFound: when it was never mentioned.
        """
        self._load(session_id)
        return self._view(self.row(session_id), self._autonomy().maximum)

    def _view(self, row: SessionRow, maximum: Level) -> SessionView:
        return SessionView(row.id, lowest(self._held(row), maximum), row.level_expires_at)

    async def change(
        self,
        session_id: str,
        level: Level,
        *,
        by: str,
        reason: str = "",
        expires_in: float | None = None,
        no_higher: bool = False,
    ) -> SessionView:
        """Set a session's level, a person's own act or one that the gate let through.

        Lowering acts at once, also on the sessions opened from it. With `no_higher` nothing is raised, also
        when somebody lowered it at the same moment.

        :raises NotFound: when the session was never mentioned.
        :raises Conflict: when it was lowered further meanwhile.
        :raises PackhostError: `AUTONOMY_DENIED` when the level passes the workspace's maximum.
        """
        due, row = self._store.read(_standing, session_id)
        if due:
            await self.fall_back()
            row = self._store.read(sessions.find, session_id)
        maximum = self._autonomy().maximum
        now_at = self._view(_found(row, session_id), maximum).level
        if rank(level) > rank(maximum):
            raise PackhostError(
                f"`{level}` passes the workspace's maximum `{maximum}`",
                code="AUTONOMY_DENIED",
                hint="raise `autonomy.maximum` in packhost.yaml and accept it, or choose a lower level",
            )
        expires_at = None
        if expires_in is not None and raise_allowed(now_at, level, maximum):
            expires_at = self._now() + expires_in
        lower = rank(level) < rank(now_at)
        changed = await self._store.write(
            sessions.set_level, session_id, level, expires_at, by, reason, no_higher=no_higher, below=lower
        )
        self._rows.clear()
        self._rows[changed.id] = changed
        return self._view(changed, maximum)

    async def raise_level(
        self,
        session_id: str | None,
        level: Level,
        reason: str,
        expires_in: float | None,
        *,
        context: CallContext,
    ) -> SessionView:
        """`elevate_autonomy`, once the gate has let it through."""
        target = self._own(session_id, context)
        held = self.view(target)
        if rank(level) < rank(held.level):
            raise InvalidInput(f"`{level}` is below the present `{held.level}`", hint="use lower_autonomy")
        return await self.change(
            target,
            level,
            by=f"{context.principal} via {context.client}",
            reason=reason,
            expires_in=expires_in,
        )

    async def lower_level(
        self, session_id: str | None, level: Level, reason: str, *, context: CallContext
    ) -> SessionView:
        """`lower_autonomy`: never raises."""
        target = self._own(session_id, context)
        held = self.view(target)
        if rank(level) > rank(held.level):
            raise InvalidInput(f"`{level}` is above the present `{held.level}`", hint="use elevate_autonomy")
        by = f"{context.principal} via {context.client}"
        return await self.change(target, level, by=by, reason=reason, no_higher=True)

    def _own(self, session_id: str | None, context: CallContext) -> str:
        """The session meant, which must be the caller's: left out, the client's own."""
        if session_id is None:
            return context.session_id
        row = self._load(session_id)
        mine = (context.principal, context.client)
        if row is None or (row.principal, row.client) != mine:
            raise NotFound(
                f"there is no session `{session_id}` of this client", hint="leave it out for your own"
            )
        if isinstance(context, GateContext) and not context.direct and session_id != context.session_id:
            raise NotFound("a run may change its own session alone", hint="leave `session_id` out")
        return session_id


def _standing(tx: Reading, session_id: str) -> tuple[bool, SessionRow | None]:
    return sessions.due(tx, tx.now()), sessions.find(tx, session_id)


def _found(row: SessionRow | None, session_id: str) -> SessionRow:
    if row is None:
        raise NotFound(f"there is no session `{session_id}`", hint="see `packhost sessions list`")
    return row


def _check_name(session_id: str) -> None:
    if not SESSION_ID.match(session_id):
        raise InvalidInput(
            f"`{session_id[:80]}` is not a session's name", hint="use 1 to 64 of A-Z a-z 0-9 . _ -"
        )


def _check_owner(row: SessionRow, principal: str, client: str) -> None:
    if (row.principal, row.client) != (principal, client):
        raise NotFound(f"there is no session `{row.id}` of this client", hint="use another session id")
