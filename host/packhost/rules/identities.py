"""Who comes in by a door with a token: roles, and what a token of each may do.

A role is the most that its tokens may do; a token's scopes say what it may do of that. `secrets:read`
is never given unless it is asked for. An operator and an auditor see what is everybody's, anyone else
what is their principal's own. An operator and an end user are people: they answer what people are asked,
an operator all of it, an end user what a run of their own asks them. A caller is a program: it answers
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

Role = Literal["caller", "end-user", "operator", "auditor"]
Right = Literal[
    "mcp",
    "tools:read",
    "runs:read",
    "runs:write",
    "sessions:write",
    "approvals:read",
    "approvals:decide",
    "grants:read",
    "grants:write",
    "audit:read",
    "secrets:read",
]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
IN_SCOPE: Final = "packhost.identity"
"""Where the scope of a request that came with a token holds its `Identity`."""
ASKED_FOR: Final[frozenset[Right]] = frozenset({"secrets:read"})
"""What a token has only when it was asked for by name."""

_USES: Final[frozenset[Right]] = frozenset(
    {"mcp", "tools:read", "runs:read", "runs:write", "sessions:write", "approvals:read"}
)
_SEES: Final[frozenset[Right]] = frozenset(
    {"tools:read", "runs:read", "approvals:read", "grants:read", "audit:read"}
)
MOST: Final[dict[Role, frozenset[Right]]] = {
    "caller": _USES | {"secrets:read"},
    "end-user": _USES | {"approvals:decide"},
    "operator": frozenset(RIGHTS),
    "auditor": _SEES,
}
"""The most that a role's tokens may do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who makes a request, and what they may do."""

    principal: str
    role: Role
    scopes: frozenset[Right]
    token_id: str
    """Of a token that was made here; empty for an authorization server's."""
    name: str = ""
    tenant: str | None = None
    """Whom calls are made for, where the token says so; else it is the workspace's own."""
    until: float | None = None
    """When an authorization server's token ends, in seconds since the epoch."""

    @property
    def sees_all(self) -> bool:
        """Whether others' runs, approvals and grants are shown."""
        return self.role in ("operator", "auditor")

    def may(self, right: Right) -> bool:
        """Whether the token has the scope, and its role allows it."""
        return right in self.scopes and right in MOST[self.role]

    def owns(self, principal: str) -> bool:
        """Whether what belongs to `principal` is shown at all."""
        return self.sees_all or principal == self.principal


def secrets_refused(identity: Identity | None, named: bool) -> bool:
    """Whether a call that names secrets in tools of its own comes with a token that may not read any."""
    return named and identity is not None and not identity.may("secrets:read")


def usual(role: Role) -> frozenset[Right]:
    """What a role's token may do unless told otherwise."""
    return MOST[role] - ASKED_FOR


def beyond(role: Role, scopes: Iterable[str]) -> list[str]:
    """Those of the scopes that no token of the role can have."""
    return sorted(set(scopes) - MOST[role])
