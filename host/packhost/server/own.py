"""The host's own two tools, which read and explain; a change that waits is put to the person on the way."""

from __future__ import annotations

from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext

from packhost.errors import PackhostError
from packhost.gate.types import CallRequest, Refusal
from packhost.server.asking import elicit, put, reply, round_of
from packhost.server.callers import can_ask, identify, is_modern, may_accept
from packhost.server.catalog import Catalog
from packhost.server.host import Consent, ServerHost
from packhost.server.profiles import profile_of, trouble
from packhost.server.wire import dumps, refused

_SAID: Final = 20
"""Sentences about a client's limits that are told at once."""


def _answer(value: dict[str, Any], sentence: str = "") -> types.CallToolResult:
    text = dumps(value)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{sentence}\n{text}" if sentence else text)],
        structured_content=value,
    )


def instructions(consent: Consent | None) -> str:
    """What a client is told of this server; a change that waits is announced."""
    text = (
        "Every tool here is governed: a workspace says what each may touch, and a person may be asked before "
        "one runs. A refusal says what to do next and is not an error to try around. packhost_explain tells "
        "beforehand what would happen to a call; packhost_status tells how this host stands."
    )
    if consent is None:
        return text
    if consent.by_hand:
        code = ", code included" if consent.code else ""
        return (
            f"{text}\nThe workspace's packhost.yaml asks for more than its person has accepted{code}; until "
            "then the accepted copy holds. Call packhost_status and pass on what it says."
        )
    return (
        f"{text}\nThe workspace's packhost.yaml asks for more than its person has accepted; until then the "
        "accepted copy holds. Call packhost_status: it puts the change to the person."
    )


def explain(
    host: ServerHost, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    """`packhost_explain`: the trace of a call that is not made."""
    given = params.arguments or {}
    tool, arguments = given.get("tool"), given.get("arguments", {})
    unknown = sorted(given.keys() - {"tool", "arguments"})
    if not isinstance(tool, str) or not isinstance(arguments, dict) or unknown:
        return refused(
            Refusal(
                "INVALID_INPUT",
                f"unknown argument `{unknown[0]}`"
                if unknown
                else "`tool` must be text, `arguments` an object",
                hint='give {"tool": "pack_tool", "arguments": {…}}',
            )
        )
    trace = host.gate.explain(CallRequest(tool, arguments, identify(ctx, host.principal)))
    return _answer(trace.as_json())


async def status(
    host: ServerHost,
    catalog: Catalog,
    ctx: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
) -> types.CallToolResult | types.InputRequiredResult:
    """`packhost_status`: how the host stands; a change without code goes to the client's dialog."""
    consent = host.consent()
    sentence = ""
    if consent is not None and consent.by_hand:
        sentence = _by_hand(consent)
    elif consent is not None and can_ask(ctx) and may_accept(ctx):
        action = await _ask(host, consent, ctx, params)
        if isinstance(action, types.InputRequiredResult):
            return action
        sentence = await _settle(host, consent, action, ctx)
    elif consent is not None:
        sentence = _by_hand(consent)
    return _answer(_view(host, catalog, ctx), sentence)


async def _ask(
    host: ServerHost,
    consent: Consent,
    ctx: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
) -> str | types.InputRequiredResult:
    text = f"Accept this change of packhost.yaml?\n{consent.text}"
    if not is_modern(ctx):
        return await elicit(ctx, text, host.approval_timeout)
    round = round_of(params.request_state)
    action = reply(params)
    # An answer counts only for the very change that the person was shown.
    if action is not None and round.subject == consent.digest:
        return action
    return "cancel" if round.last else put(text, round.next(consent.digest))


async def _settle(
    host: ServerHost, consent: Consent, action: str, ctx: ServerRequestContext[Any, Any]
) -> str:
    if action == "decline":
        return "The person declined the change; the accepted copy holds."
    if action != "accept":
        return f"Nobody answered. {_by_hand(consent)}"
    try:
        await host.accept(consent.digest, by=identify(ctx, host.principal).principal, channel="client")
    except PackhostError as error:
        return f"The change was not accepted: {error}. {error.hint}".rstrip()
    return "The person accepted the change; it is in force."


def _by_hand(consent: Consent) -> str:
    return (
        "A change of packhost.yaml waits to be accepted. Ask the person to look at it in a terminal of their "
        f"own: {consent.command}"
    )


def _client(catalog: Catalog, name: str, told: str) -> dict[str, Any]:
    """What of this host does not reach the client's model, where its limits are known."""
    profile = profile_of(name)
    said = [] if profile is None else list(trouble(profile, catalog.offered, told))
    return {"client": {"name": name, "limits": said[:_SAID]}} if said else {}


def _view(host: ServerHost, catalog: Catalog, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    status = host.status()
    consent = host.consent()
    listing = catalog.listing
    caller = identify(ctx, host.principal)
    return {
        "version": host.version,
        "workspace": status.workspace,
        "accepted": status.accepted,
        "waiting": {"change": consent.text, "code": consent.code, "accept": consent.command}
        if consent
        else None,
        "pending_approvals": status.pending_approvals,
        "problems": list(status.problems),
        "tools": len(listing.tools),
        "withheld": [{"tool": w.tool, "layer": w.layer, "reason": w.reason} for w in listing.withheld],
        "store": status.store,
        **_client(catalog, caller.client, instructions(consent)),
        "session": {"id": caller.session_id, "client": caller.client, "principal": caller.principal},
        **status.more,
    }
