"""The section `auth` of packhost.yaml: whose access tokens are taken over HTTP, beside those made here.

It is read from the accepted copy alone, since it decides who gets in.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from packhost.manifest.values import Flag, fault
from packhost.rules.identities import Right, Role

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures by a key pair; none that whoever checks a token could make too."""
USUAL: Final[tuple[Algorithm, ...]] = ("RS256", "ES256", "EdDSA")
_PLAIN: Final = re.compile(r"[\x21-\x7e]{1,512}\Z")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}\Z")


class _Model(BaseModel):
    # built once, as part of the whole file's model: by themselves they would be built for nothing
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def on_this_machine(url: str) -> bool:
    """Whether a URL's host is this machine by one of its own names."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    hint = "write `https://HOST[:PORT][/PATH]`; plain http is for this machine alone"
    try:
        parts = urlsplit(url)
        found = parts.hostname, parts.port
    except ValueError:
        raise fault("this is no address", hint) from None
    sound = _PLAIN.match(url) and "\\" not in url and "@" not in parts.netloc and found[0]
    if not sound or "#" in url or "?" in url or parts.scheme not in ("http", "https"):
        raise fault("this is no plain address", hint)
    if parts.scheme == "http" and not on_this_machine(url):
        raise fault(f"`{parts.hostname}` is to be reached without encryption", hint)
    return url


def _checked_resource(url: str) -> str:
    return _checked_url(url).rstrip("/")


def _checked_claim(name: str) -> str:
    if not _PLAIN.match(name):
        raise fault("this is no claim's name", "write it as it stands in the token, such as `sub`")
    return name


def _checked_prefix(text: str) -> str:
    if len(text) > 128 or not text.isprintable():
        raise fault("this cannot begin a principal's name", "use at most 128 characters that can be printed")
    return text


def _some(algorithms: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    if not algorithms:
        raise fault("without a signature no token is taken", "name one, such as `ES256`")
    return algorithms


def _checked_scopes(scopes: dict[str, tuple[Right, ...]]) -> dict[str, tuple[Right, ...]]:
    for name in scopes:
        if not _SCOPE.match(name):
            raise fault(f"`{name[:80]}` cannot be the name of a scope", "use visible ASCII without quotes")
    return scopes


Url = Annotated[str, AfterValidator(_checked_url)]
Claim = Annotated[str, AfterValidator(_checked_claim)]


class RoleSettings(_Model):
    """Gives a role to the tokens that have a value in a claim."""

    claim: Claim = Field(
        description="A claim, or a path to it with dots: `groups`, `client_id`, `realm_access.roles`."
    )
    value: str = Field(min_length=1, description="What it is, or holds where it is a list.")
    role: Role = Field(description="`caller`, `end-user`, `operator` or `auditor`.")


class IssuerSettings(_Model):
    """An authorization server whose access tokens are taken: signed JWTs."""

    issuer: Url = Field(description="The server's own name for itself, exactly as in `iss` of its tokens.")
    audience: tuple[Annotated[str, Field(min_length=1, max_length=512)], ...] = Field(
        default=(), description="What `aud` of a token must name; left out, the address that is asked."
    )
    jwks: Url | None = Field(
        default=None, description="Where its keys are; left out, where the server's metadata says."
    )
    algorithms: Annotated[tuple[Algorithm, ...], AfterValidator(_some)] = Field(
        default=USUAL, description="The signatures that are taken."
    )
    principal: Claim = Field(
        default="sub", description="The claim that says who it is. Take one that nobody can choose anew."
    )
    prefix: Annotated[str, AfterValidator(_checked_prefix)] | None = Field(
        default=None, description="What the principal's name begins with; left out, the issuer and `#`."
    )
    tenant: Claim | None = Field(
        default=None,
        description="The claim that says whom calls are made for (`_tenant`); it then becomes part of the "
        "principal's name, and a token without it is refused.",
    )
    roles: tuple[RoleSettings, ...] = Field(
        default=(), description="Which tokens have which role; the first that fits counts."
    )
    role: Role | Literal["none"] = Field(
        default="caller", description="The role of every other token; `none` refuses them."
    )

    @property
    def begins(self) -> str:
        """What the names of its principals begin with."""
        return f"{self.issuer}#" if self.prefix is None else self.prefix


class AuthSettings(_Model):
    """Who is let in over HTTP."""

    required: Flag | None = Field(
        default=None,
        description="Whether `/mcp` and `/sse` want a token also from your own processes; left out, they do "
        "where `resource` is an address that others reach.",
    )
    resource: Annotated[str, AfterValidator(_checked_resource)] | None = Field(
        default=None,
        description="The address by which clients reach this host, where it is not the one that it listens "
        "at: the proxy's.",
    )
    issuers: tuple[IssuerSettings, ...] = Field(
        default=(), description="The authorization servers whose access tokens are taken."
    )
    scopes: Annotated[dict[str, tuple[Right, ...]], AfterValidator(_checked_scopes)] = Field(
        default_factory=dict,
        description="What the scopes of access tokens allow here; left out, each has the name of ours.",
    )

    @model_validator(mode="after")
    def _nobody_twice(self) -> AuthSettings:
        for index, one in enumerate(self.issuers):
            for other in self.issuers[index + 1 :]:
                if one.issuer == other.issuer:
                    raise fault(f"the issuer `{one.issuer}` stands twice", "keep one of them")
                if one.begins.startswith(other.begins) or other.begins.startswith(one.begins):
                    raise fault(
                        f"`{one.issuer}` and `{other.issuer}` could name the same principal",
                        "give them prefixes of which neither begins the other, or leave them out",
                    )
        return self

    @property
    def wants_token(self) -> bool:
        """Whether nobody is served at the doors of MCP without a token."""
        if self.required is not None:
            return self.required
        return self.resource is not None and not on_this_machine(self.resource)
