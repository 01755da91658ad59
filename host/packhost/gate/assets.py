"""Assets in the store; see `packhost.kinds.assets`."""

from __future__ import annotations

import base64
import hashlib

from packhost.errors import NotFound, PackhostError
from packhost.kinds.assets import LARGEST, LIFETIME, SCHEME, TOTAL, Asset, asset_id
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.ops import assets
from packhost.store.rows import AssetRow


class Assets:
    """Implements `AssetService`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(self, data: bytes, media_type: str, *, session_id: str, principal: str) -> Asset:
        """Keep bytes for seven days.

        :raises PackhostError: `OUTPUT_TOO_LARGE` for one that is, `LIMIT_EXCEEDED` when there are too many.
        """
        if len(data) > LARGEST:
            raise PackhostError(
                f"a binary result has at most {LARGEST} bytes", code="OUTPUT_TOO_LARGE", hint="ask for less"
            )
        row = await self._store.write(
            assets.keep,
            new_id("asset"),
            session_id,
            principal,
            media_type,
            base64.b64encode(data).decode("ascii"),
            len(data),
            hashlib.sha256(data).hexdigest(),
            LIFETIME,
            TOTAL,
        )
        return _asset(row)

    async def open(self, handle: str, *, session_id: str, principal: str) -> Asset:
        """What a handle stands for.

        :raises NotFound: when it is missing, expired or another's, which look the same.
        """
        identity = asset_id(handle)
        row = None if identity is None else self._store.read(assets.find, identity, session_id, principal)
        if row is None:
            raise NotFound(
                f"there is nothing behind `{handle[:80]}` here",
                hint="a handle is good for seven days, in the sessions around the one that it was made in",
            )
        return _asset(row)


def _asset(row: AssetRow) -> Asset:
    return Asset(f"{SCHEME}{row.id}", row.media_type, row.size, row.data)
