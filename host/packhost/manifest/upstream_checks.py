"""What must hold in the block `upstream` of a manifest, and between it and the tools that go there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from packhost.manifest.model import PackManifest, ToolSpec
from packhost.manifest.schemas import Path
from packhost.manifest.upstream import KIND, SECRET, UpstreamSpec, address_of, scope_of
from packhost.rules.scopes import Layer, NetworkScope, SecretScope, network_use, parse_scope

Fault = tuple[Path, str, str]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "content-type", "accept", "transfer-encoding", "connection"}
)
_LOCAL: Final = ("args", "env", "cwd", "sandbox", "readable", "writable")
_REMOTE: Final = ("transport", "headers", "auth")
_UPSTREAM: Final[Path] = ("upstream",)


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
