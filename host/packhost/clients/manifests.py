"""From a server and what it says of its tools to the manifest of a pack that governs it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.characters import visible
from packhost.clients.servers import Server
from packhost.errors import ConfigInvalid, PackhostError
from packhost.kinds.mcp.pins import Pins
from packhost.kinds.mcp.proposals import Proposal, propose, words_of
from packhost.kinds.mcp.specs import Reach, tool_entry, tool_name
from packhost.manifest.load import parse_manifest
from packhost.manifest.problems import problems_of
from packhost.manifest.upstream import SECRET
from packhost.workspace.writing import block, entry

_RESERVED: Final = frozenset({"packhost", "inline"})
_LONGEST_PACK: Final = 30


@dataclass(frozen=True, slots=True)
class ProposedTool:
    """A tool as it is to stand in the manifest: `original` is the server's own name for it."""

    original: str
    name: str
    proposal: Proposal
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposedPack:
    """A manifest to be written, and what is to be known of it; `left_out` are tools with the reason."""

    id: str
    text: str
    tools: tuple[ProposedTool, ...]
    left_out: tuple[tuple[str, str], ...]
    scopes: tuple[str, ...]
    """Every scope that a tool of it declares."""


def pack_id(server: str, taken: Collection[str]) -> str:
    """A pack's name for a server, unlike those that are taken."""
    wanted = "-".join(words_of(server)) or "server"
    wanted = (wanted if wanted[0].isalpha() else f"mcp-{wanted}")[:_LONGEST_PACK].rstrip("-")
    if wanted in _RESERVED or wanted in taken:
        wanted = f"{wanted}-mcp"
    number, found = 2, wanted
    while found in taken:
        found, number = f"{wanted}-{number}", number + 1
    return found


def propose_pack(
    server: Server,
    pack: str,
    pins: Pins,
    *,
    write_globs: Sequence[str],
    upstream: Mapping[str, Any],
    title: str,
) -> ProposedPack:
    """The manifest for a server's tools; one that no manifest can hold is left out and said to be.

    `write_globs` are where its path arguments may write; `upstream` is the block that says how it is reached.
    """
    taken: set[str] = set()
    reach = Reach(server.url, tuple(secret.name for secret in server.secrets), tuple(write_globs))
    entries: list[tuple[ProposedTool, dict[str, Any]]] = []
    for key, definition in pins.items():
        if not key.startswith("tool:"):
            continue
        original = str(definition.get("name", ""))
        if _kept_from(server, original):
            continue
        name = tool_name(original, pack, taken)
        taken.add(name)
        proposal = propose(definition, local=bool(server.command))
        entries.append(
            (ProposedTool(original, name, proposal), tool_entry(name, definition, proposal, reach))
        )
    head = {
        "packhost": 1,
        "id": pack,
        "version": "1.0.0",
        "title": title,
        "description": f"Tools of the MCP server `{visible(server.name)}`.",
        "upstream": dict(upstream),
    }
    sound, left_out = _sound(head, entries)
    scopes = tuple(dict.fromkeys(scope for _, spec in sound for scope in spec.get("required_scopes", ())))
    text = manifest_text(head, [spec for _, spec in sound])
    return ProposedPack(pack, text, tuple(tool for tool, _ in sound), left_out, scopes)


def manifest_text(head: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    """The file's text."""
    lines = ["# Written by `packhost adopt`; edit it as you like, then `packhost accept`.", *block(head)]
    lines += ["tools:" if tools else "tools: []"]
    for tool in tools:
        lines += entry(tool, "  ")
    return "\n".join(lines) + "\n"


def _kept_from(server: Server, tool: str) -> bool:
    return tool in server.without or (server.only is not None and tool not in server.only)


def upstream_block(server: Server, *, resources: bool, prompts: bool) -> dict[str, Any]:
    """How a manifest says where the server is; what it offers beside tools is passed on, governed like them.

    Raises `ConfigInvalid` for a URL that holds a secret.
    """
    found: dict[str, Any] = {}
    if server.url is not None:
        if SECRET.search(server.url):
            raise ConfigInvalid(
                f"the URL of the server `{server.name}` holds a secret", hint="give it by a header instead"
            )
        found["url"] = server.url
        if server.sse:
            found["transport"] = "sse"
        if server.headers:
            found["headers"] = dict(server.headers)
    else:
        found["command"] = list(without_secrets(server.command))
        env = dict(server.env)
        said = {name for word in server.command for name in SECRET.findall(word)}
        env |= {name: f"{{{{secret:{name}}}}}" for name in sorted(said)}
        if env:
            found["env"] = env
        if server.cwd is not None:
            found["cwd"] = server.cwd
    if server.start_timeout is not None:
        found["start_timeout"] = f"{server.start_timeout:g}s"
    found |= {name: "allow" for name, has in (("resources", resources), ("prompts", prompts)) if has}
    return found


def without_secrets(command: Sequence[str]) -> tuple[str, ...]:
    """The command line; where it holds secrets, a shell that takes them from its environment."""
    if not any(SECRET.search(word) for word in command):
        return tuple(command)
    words = []
    for word in command:
        pieces = SECRET.split(word)
        words.append(
            "".join(
                f'"${{{piece}}}"' if number % 2 else shlex.quote(piece) if piece else ""
                for number, piece in enumerate(pieces)
            )
            or "''"
        )
    return ("/bin/sh", "-c", f"exec {' '.join(words)}")


def _sound(
    head: Mapping[str, Any], entries: Sequence[tuple[ProposedTool, dict[str, Any]]]
) -> tuple[list[tuple[ProposedTool, dict[str, Any]]], tuple[tuple[str, str], ...]]:
    """The tools that a manifest can hold; a schema that is not sound alone gives way to any object."""
    kept: list[tuple[ProposedTool, dict[str, Any]]] = []
    left_out: list[tuple[str, str]] = []
    for tool, spec in entries:
        fault = _fault(head, spec)
        if fault and "schema" in fault:
            spec = {key: one for key, one in spec.items() if key != "output_schema"}
            if _fault(head, spec):
                spec["input_schema"] = {"type": "object"}
            note = "its schema is not one that packhost can hold its arguments to"
            tool = ProposedTool(tool.original, tool.name, tool.proposal, (*tool.notes, note))
            fault = _fault(head, spec)
        if fault:
            left_out.append((tool.original, fault))
        else:
            kept.append((tool, spec))
    return kept, tuple(left_out)


def _fault(head: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    try:
        parse_manifest(manifest_text(head, [spec]).encode("utf-8", "surrogatepass"), "pack.yaml")
    except PackhostError as error:
        return problems_of(error)[0].message
    return ""
