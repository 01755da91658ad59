"""The block `upstream` of a manifest: the MCP server that a pack's tools of kind `mcp` go to.

What must hold between its fields, and between it and the tools, is in `upstream_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from packhost.manifest.values import Duration, Flag, Size, Whole

SECRET: Final = re.compile(r"\{\{\s*secret\s*:\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
KIND: Final = "mcp"
PACK: Final = "{{pack}}"
"""Stands in a command for the folder of the pack as it was accepted."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OAuthSpec(_Model):
    """How a person signs in to a server, by `packhost upstream login`; without an id one is registered."""

    client_id: str | None = Field(default=None, description="The id that this host is known by there.")
    client_secret: str | None = Field(default=None, description="Its secret, `{{secret:NAME}}`.")


class UpstreamSpec(_Model):
    """An MCP server: a command that packhost runs, or a URL."""

    command: tuple[str, ...] = Field(
        default=(),
        description="The program and its arguments; it speaks MCP on its standard input and output. A "
        "program without `/` is looked up on `PATH`, a relative one in `cwd`. `{{pack}}` is the folder of "
        "the pack as it was accepted, which nobody but a person changes.",
    )
    args: tuple[str, ...] = Field(default=(), description="Further arguments, after those of `command`.")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Its environment beside `PATH`, `HOME`, `USER`, `LANG` and `TMPDIR`; nothing else of "
        "packhost's own gets there. A value may hold `{{secret:NAME}}`.",
    )
    cwd: str | None = Field(
        default=None, description="Where it is started; relative to the workspace, which is the default."
    )
    url: str | None = Field(default=None, description="Where it is reached by HTTP.")
    transport: Literal["auto", "http", "sse"] = Field(
        default="auto", description="Streamable HTTP, or the older server-sent events; `auto` tries both."
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="Headers of each request. A value may hold `{{secret:NAME}}`.",
    )
    auth: Literal["oauth"] | OAuthSpec | None = Field(
        default=None, description="`oauth`, or how: a person signs in with `packhost upstream login`."
    )
    era: Literal["auto", "modern", "legacy"] = Field(
        default="auto",
        description="The protocol: `2026-07-28` or the session-based ones before; `auto` asks.",
    )
    sandbox: Literal["none", "kernel"] = Field(
        default="none",
        description="`kernel`: the kernel holds it to `readable` and `writable`, without any network. "
        "`none`: nothing does, and its calls are recorded as `advisory`.",
    )
    readable: tuple[str, ...] = Field(
        default=(), description="Absolute paths that it may read and run, beside the system's libraries."
    )
    writable: tuple[str, ...] = Field(default=(), description="Absolute paths that it may read and write.")
    start_timeout: Duration = Field(default=30.0, description="How long it may take to answer at first.")
    idle_timeout: Duration | None = Field(
        default=None, description="It is ended when it was not called for so long; started again by a call."
    )
    concurrency: Annotated[Whole, Field(ge=1, le=1024)] = Field(
        default=64, description="Calls that it gets at once; others wait for their turn."
    )
    keep_over: Size = Field(
        default=256 * 1024,
        description="A part of a result that is larger is kept by packhost; its beginning and a link remain.",
    )
    resources: Literal["allow", "deny"] = Field(
        default="deny", description="Whether its resources are passed on, each reading a governed call."
    )
    prompts: Literal["allow", "deny"] = Field(default="deny", description="The same for its prompts.")
    elicitation: Literal["allow", "deny"] = Field(
        default="allow", description="Whether it may ask a person for input in the middle of a call."
    )
    pinned: Flag = Field(
        default=True,
        description="Whether a tool is withheld when the server defines it otherwise than was accepted.",
    )

    @property
    def line(self) -> tuple[str, ...]:
        """The program with all its arguments."""
        return (*self.command, *self.args)

    @property
    def oauth(self) -> OAuthSpec | None:
        """How a person signs in, where the server wants that."""
        return OAuthSpec() if self.auth == "oauth" else self.auth

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that it is given, by name."""
        texts = [*self.env.values(), *self.headers.values()]
        if self.oauth is not None:
            texts.append(self.oauth.client_secret or "")
        return tuple(dict.fromkeys(name for text in texts for name in SECRET.findall(text)))


def address_of(url: str) -> tuple[str, int, bool] | None:
    """Host, port and whether it is encrypted; `None` for what is no address of the web."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("https", "http") or not host or parts.username is not None or parts.fragment:
        return None
    secure = parts.scheme == "https"
    return host, port or (443 if secure else 80), secure


def scope_of(url: str) -> str:
    """The scope that a tool needs to reach a URL, as it is written."""
    host, port, secure = address_of(url) or ("", 0, True)
    shown = f"[{host}]" if ":" in host else host
    return f"network {shown}" if secure and port == 443 else f"network {shown}:{port}"


def filled(texts: Sequence[tuple[str, str]], secrets: dict[str, str]) -> dict[str, str]:
    """Names and texts, with each secret in its place."""
    return {name: SECRET.sub(lambda found: secrets[found[1]], text) for name, text in texts}
