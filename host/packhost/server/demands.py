"""What a request's `_meta` asks of its call: a key that names it, its intent on record before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mcp.server.context import ServerRequestContext

from packhost.errors import InvalidInput
from packhost.gate.recall import key_of
from packhost.gate.types import Caller
from packhost.names import IDEMPOTENCY_KEY, INTENT

_INTENTS: Final = ("mandatory", "best-effort")


def own_key(ctx: ServerRequestContext[Any, Any], caller: Caller) -> str | None:
    """The key that the client gave its call, within what is its own; `None` where it gave none.

    Raises `InvalidInput` for one that cannot be used.
    """
    key = _meta(ctx).get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    return key_of(key, caller, f"/_meta/{IDEMPOTENCY_KEY}")


def raised(ctx: ServerRequestContext[Any, Any], caller: Caller) -> Caller:
    """The caller, held to the intent that the request asks for; it can only raise it.

    Raises `InvalidInput` for a word that is none.
    """
    intent = _meta(ctx).get(INTENT)
    if intent is not None and intent not in _INTENTS:
        raise InvalidInput(
            f"`{str(intent)[:64]}` is no way to record intents",
            path=f"/_meta/{INTENT}",
            hint="write `mandatory`, or leave it out",
        )
    return replace(caller, intent="mandatory") if intent == "mandatory" else caller


def _meta(ctx: ServerRequestContext[Any, Any]) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}
