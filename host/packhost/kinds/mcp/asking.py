"""What a server asks of a person in the middle of a call: put, and the answer taken back to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from packhost.errors import InvalidInput, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext, Elicitation
from packhost.kinds.mcp.peer import BAD_REQUEST, NO_METHOD, Flight, Peer, RpcError

LINK_NEEDED: Final = -32042
"""The code of an answer that says: first a person has to follow a link."""
ROUNDS: Final = 20
"""Times that a call is made again with what the server needs, at most."""
REFUSED: Final = {
    "sampling/createMessage": "packhost does not lend servers the client's model",
    "roots/list": "packhost does not tell servers of folders",
}


def whose(peer: Peer) -> Flight:
    """The call that a server's question belongs to, which the session-based protocol does not say.

    Raises `RpcError` where nobody can tell: a question must not reach another caller's person.
    """
    found = [flight for flight in peer.flights.values() if flight.owner is not None]
    if not found:
        raise RpcError(BAD_REQUEST, "no call is under way, so there is nobody to ask")
    callers = {(one.owner.principal, one.owner.client, one.owner.session_id) for one in found}
    if len(callers) > 1:
        raise RpcError(BAD_REQUEST, "calls of several callers are under way: nobody can tell who is asked")
    return found[-1]


def refused(method: str) -> RpcError:
    """The answer to what a server may not ask."""
    return RpcError(NO_METHOD, REFUSED.get(method, "packhost does not serve this"))


async def elicited(params: Mapping[str, Any], pack: str, context: CallContext) -> dict[str, Any]:
    """A person's answer as the server takes it.

    Raises `RpcError` for a question that cannot be put, `PackhostError` as `CallContext.elicit` does.
    """
    mode, message = params.get("mode", "form"), params.get("message")
    schema, url = params.get("requestedSchema"), params.get("url")
    if not isinstance(message, str) or mode not in ("form", "url"):
        raise RpcError(BAD_REQUEST, "a question has a `message`, and the `mode` form or url")
    if mode == "url" and isinstance(url, str):
        wanted = Elicitation(message, url=url, asks=pack)
    elif mode == "form" and isinstance(schema, Mapping):
        wanted = Elicitation(message, schema, asks=pack)
    else:
        raise RpcError(BAD_REQUEST, "a question has a `requestedSchema`, or a `url`")
    try:
        answer = await context.elicit(wanted)
    except InvalidInput as error:
        raise RpcError(BAD_REQUEST, error.message) from None
    if answer.action == "accept" and mode == "form":
        return {"action": "accept", "content": dict(answer.content or {})}
    return {"action": answer.action}


async def inputs(needed: Any, pack: str, context: CallContext, *, asks: bool) -> dict[str, Any]:
    """What a server of the stateless era needs before a call goes on, by its own keys, one after the other.

    Raises `RpcError` for anything but a question to a person.
    """
    found: dict[str, Any] = {}
    for key, one in needed.items() if isinstance(needed, Mapping) else ():
        method = one.get("method") if isinstance(one, Mapping) else None
        if method != "elicitation/create" or not asks:
            raise refused(str(method))
        params = one.get("params")
        found[str(key)] = await elicited(params if isinstance(params, Mapping) else {}, pack, context)
    return found


async def follow_links(error: RpcError, tool: Tool, context: CallContext) -> None:
    """Send a person where the server wants them first. Raises `ToolFailed` when they do not go."""
    listed = error.data.get("elicitations") if isinstance(error.data, Mapping) else None
    for one in listed if isinstance(listed, list) else ():
        params = {**one, "mode": "url"} if isinstance(one, Mapping) else {}
        try:
            answer = await elicited(params, tool.id.pack, context)
        except RpcError as fault:
            raise ToolFailed(
                f"the server of `{tool.id}` asks for what cannot be put: {fault.message}"
            ) from None
        if answer["action"] != "accept":
            raise ToolFailed(
                f"`{tool.id}` needs a person to follow a link of its server first, and nobody did",
                hint="have them do it, then make the call again",
            )
