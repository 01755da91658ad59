"""Who calls: the principal, the client's name and its own session.

Over stdio, a socket, SSE and session-based HTTP a connection has a session of its own. Stateless HTTP
has no connection: there the session follows from principal and client name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.types import Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from packhost.gate.types import Caller
from packhost.names import RELAYED
from packhost.rules.identities import IN_SCOPE, Identity

MAX_SESSIONS: Final = 10_000
"""HTTP sessions that are remembered; the one unused for longest is forgotten first."""
_MCP_SESSION: Final = "mcp-session-id"
_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"

relayed_session: ContextVar[str | None] = ContextVar("relayed_session", default=None)
"""The session that a relay brings along to each holder; set around the serving of its connection."""


def new_session() -> str:
    """A new connection's session."""
    return f"s-{os.urandom(10).hex()}"


@dataclass(slots=True)
class Peer:
    """One connection: its session, and how to reach it unasked once its handshake is done."""

    session_id: str = field(default_factory=lambda: relayed_session.get() or new_session())
    outbox: ServerSession | None = None
    relayed: bool = field(default_factory=lambda: relayed_session.get() is not None)
    log_level: str = "info"
    """The least level of what tools say while they run that this connection is told."""
    hears: set[str] = field(default_factory=set)
    """The resources that it is told of when they change."""


@dataclass(slots=True)
class Link:
    """What one run of the server's lifespan serves: a connection, or every session of the HTTP manager."""

    key: bytes
    """What the sessions of stateless HTTP are named with, the same on every host of a workspace."""
    own: Peer = field(default_factory=Peer)
    sessions: OrderedDict[str, Peer] = field(default_factory=OrderedDict)

    def peer(self, ctx: ServerRequestContext[Any, Any]) -> Peer | None:
        """The connection that a message came over; `None` for stateless HTTP."""
        headers = headers_of(ctx)
        if headers is None:
            return self.own
        if is_modern(ctx):
            return None
        id = headers.get(_MCP_SESSION)
        if id is None:
            return self.own
        peer = self.sessions.get(id)
        if peer is None:
            peer = self.sessions[id] = Peer()
            if len(self.sessions) > MAX_SESSIONS:
                self.sessions.popitem(last=False)
        else:
            self.sessions.move_to_end(id)
        return peer


def is_modern(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether a message is of the stateless era."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def headers_of(ctx: ServerRequestContext[Any, Any]) -> Mapping[str, str] | None:
    """The HTTP headers that a message came with; `None` where there is no HTTP."""
    return getattr(ctx.request, "headers", None)


def client_name(ctx: ServerRequestContext[Any, Any]) -> str:
    """How the client calls itself: a label, never an identity."""
    if params := ctx.session.client_params:
        return _clean(params.client_info.name)
    meta = (ctx.params or {}).get("_meta")
    info = meta.get(_CLIENT_INFO) if isinstance(meta, Mapping) else None
    return _clean(info.name) if isinstance(info, Implementation) else "unknown"


def _clean(name: str) -> str:
    return "".join(c for c in name if c.isprintable())[:64] or "unknown"


def identity_of(ctx: ServerRequestContext[Any, Any]) -> Identity | None:
    """Whose token a request came with; `None` for one without."""
    scope = getattr(ctx.request, "scope", None)
    identity = scope.get(IN_SCOPE) if isinstance(scope, Mapping) else None
    return identity if isinstance(identity, Identity) else None


def principal_of(ctx: ServerRequestContext[Any, Any], own: str) -> str:
    """Whom a request is for: the principal of the token that it came with, else `own`."""
    identity = identity_of(ctx)
    return identity.principal if identity is not None else own


def may_decide(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the word of this client counts for what is asked of people.

    Without a token it is whoever sits at the machine. A program with a token could say anything of a person.
    """
    identity = identity_of(ctx)
    return identity is None or identity.may("approvals:decide")


def of_end_user(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether an end user is at this client, by a token of their own."""
    identity = identity_of(ctx)
    return identity is not None and identity.role == "end-user"


def may_accept(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the person at this client's dialog answers for the workspace."""
    identity = identity_of(ctx)
    return may_decide(ctx) and (identity is None or identity.role == "operator")


def identify(ctx: ServerRequestContext[Any, Any], own: str) -> Caller:
    """The caller of a request; `own` is the principal of one that came without a token."""
    principal, client = principal_of(ctx, own), client_name(ctx)
    link: Link = ctx.lifespan_context
    peer = link.peer(ctx)
    if peer is not None:
        session = peer.session_id
    else:
        # Keyed, since a session belongs to whoever mentions it first: nobody else can name it before.
        named = hmac.new(link.key, "\0".join((principal, client)).encode("utf-8", "replace"), hashlib.sha256)
        session = f"s-{named.hexdigest()[:20]}"
    identity = identity_of(ctx)
    return Caller(
        principal=principal,
        client=client,
        session_id=session,
        attended=can_ask(ctx),
        secrets=identity is None or identity.may("secrets:read"),
        end_user=of_end_user(ctx),
        tenant=None if identity is None else identity.tenant,
    )


def relayed_key(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """What names a relayed call wherever it is sent again; `None` for a call that came another way."""
    peer = ctx.lifespan_context.peer(ctx)
    meta = (ctx.params or {}).get("_meta")
    number = meta.get(RELAYED) if peer is not None and peer.relayed and isinstance(meta, Mapping) else None
    return f"{peer.session_id}:{number}" if type(number) is int else None


def can_link(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client can send its person to an address."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and elicitation.url is not None


def can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client can put a form to its person."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return is_modern(ctx) or ctx.session.can_send_request
