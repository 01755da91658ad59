"""The block `upstream` of a manifest: the MCP server that a pack's tools of kind `mcp` go to.

Rules that reach over several fields are `upstream_faults`, which `checks` asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from packhost.manifest.schemas import Path
from packhost.manifest.values import Duration, Flag, Size, Whole
from packhost.rules.scopes import Layer, NetworkScope, SecretScope, network_use, parse_scope

if TYPE_CHECKING:
    from packhost.manifest.model import PackManifest, ToolSpec

Fault = tuple[Path, str, str]
SECRET: Final = re.compile(r"\{\{\s*secret\s*:\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
KIND: Final = "mcp"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "content-type", "accept", "transfer-encoding", "connection"}
)
_LOCAL: Final = ("args", "env", "cwd", "sandbox", "readable", "writable")
_REMOTE: Final = ("transport", "headers", "auth")
_UPSTREAM: Final[Path] = ("upstream",)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OAuthSpec(_Model):
    """How a person signs in to a server, by `packhost upstream login`; without an id one is registered."""

    scopes: tuple[str, ...] = Field(default=(), description="What to ask the server's authority for.")
    client_id: str | None = Field(default=None, description="The id that this host is known by there.")
    client_secret: str | None = Field(default=None, description="Its secret, `{{secret:NAME}}`.")


class UpstreamSpec(_Model):
    """An MCP server: a command that packhost runs, or a URL."""

    command: tuple[str, ...] = Field(
        default=(),
        description="The program and its arguments; it speaks MCP on its standard input and output. A "
        "program without `/` is looked up on `PATH`, a relative one in `cwd`.",
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


def upstream_faults(manifest: PackManifest) -> Iterator[Fault]:
    """Everything that is wrong with the block, and between it and the tools."""
    upstream = manifest.upstream
    for index, tool in enumerate(manifest.tools):
        if tool.kind == KIND:
            yield from (_in_tool(index, tool, fault) for fault in _tool_faults(tool, upstream))
    if upstream is None:
        return
    if bool(upstream.command) == (upstream.url is not None):
        yield _UPSTREAM, "`upstream` has neither or both of `command` and `url`", "write one of them"
        return
    others, what = (_LOCAL, "a server by URL") if upstream.url is not None else (_REMOTE, "a command")
    for name in others:
        if name in upstream.model_fields_set:
            yield (*_UPSTREAM, name), f"`upstream.{name}` does not go with {what}", "take it out"
    yield from _remote_faults(upstream) if upstream.url is not None else _local_faults(upstream)


def _in_tool(index: int, tool: ToolSpec, fault: Fault) -> Fault:
    path, message, hint = fault
    return ("tools", index, *path), f"tool `{tool.name}`: {message}", hint


def _tool_faults(tool: ToolSpec, upstream: UpstreamSpec | None) -> Iterator[Fault]:
    if upstream is None:
        yield ("kind",), "a tool of kind `mcp` needs the block `upstream`", "say which server it goes to"
        return
    layer = Layer("manifest", tuple(parse_scope(line) for line in tool.required_scopes))
    for name in upstream.secrets:
        if SecretScope(name) not in layer.scopes:
            message = f"its server is given `{{{{secret:{name}}}}}`, which has no scope"
            yield ("required_scopes",), message, f"add `secret {name}` to `required_scopes`"
    address = address_of(upstream.url) if upstream.url is not None else None
    if address is not None and upstream.url is not None:
        host, port, secure = address
        covered = network_use(host, port, (layer,)) is None
        if not covered or not (secure or NetworkScope(host, port) in layer.scopes):
            message = "its server has no scope"
            yield ("required_scopes",), message, f"add `{scope_of(upstream.url)}` to `required_scopes`"


def _local_faults(upstream: UpstreamSpec) -> Iterator[Fault]:
    for name, texts in (("command", upstream.command), ("args", upstream.args)):
        for text in texts:
            yield from _plain((*_UPSTREAM, name), text, "an argument is seen by every user: give it by `env`")
    for name, text in upstream.env.items():
        at = (*_UPSTREAM, "env", name)
        if not _VARIABLE.match(name):
            yield at, f"`{name[:64]}` is not the name of a variable", "rename it"
        if "\0" in text:
            yield at, f"the variable `{name}` holds a NUL", "take it out"
    for key, paths in (("readable", upstream.readable), ("writable", upstream.writable)):
        if paths and upstream.sandbox == "none":
            yield (
                (*_UPSTREAM, key),
                f"`upstream.{key}` holds nothing without a sandbox",
                "write `sandbox: kernel`",
            )
        for path in paths:
            if not path.startswith("/") or "\0" in path:
                yield (*_UPSTREAM, key), f"`{path[:80]}` is not an absolute path", "begin it with `/`"


def _remote_faults(upstream: UpstreamSpec) -> Iterator[Fault]:
    at = (*_UPSTREAM, "url")
    if address_of(upstream.url or "") is None:
        yield at, "`upstream.url` is no address of the web", "write `https://HOST/PATH`"
    yield from _plain(at, upstream.url or "", "give it by a header")
    for name, text in upstream.headers.items():
        where = (*_UPSTREAM, "headers", name)
        if not _HEADER.match(name) or name.lower() in _OWN_HEADERS or name.lower().startswith("mcp-"):
            yield where, f"`{name[:64]}` is not a header that can be given", "rename it, or take it out"
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            yield where, f"the header `{name[:64]}` holds a control character", "take it out"
        if upstream.auth is not None and name.lower() == "authorization":
            yield where, "`auth` gives this header already", "take one of them out"
    secret = upstream.oauth.client_secret if upstream.oauth is not None else None
    if secret is not None and not SECRET.fullmatch(secret):
        yield (*_UPSTREAM, "auth", "client_secret"), "it is not `{{secret:NAME}}`", "name a secret instead"


def _plain(path: Path, text: str, hint: str) -> Iterator[Fault]:
    if SECRET.search(text):
        yield path, "it cannot hold a secret", hint
    if "\0" in text:
        yield path, "it holds a NUL", "take it out"


def filled(texts: Sequence[tuple[str, str]], secrets: dict[str, str]) -> dict[str, str]:
    """Names and texts, with each secret in its place."""
    return {name: SECRET.sub(lambda found: secrets[found[1]], text) for name, text in texts}
