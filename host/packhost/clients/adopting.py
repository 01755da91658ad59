"""From what clients have to a workspace that governs it: what is found, what is to be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from packhost.characters import visible
from packhost.clients.entries import entry_for, is_packhost
from packhost.clients.forms import ClientFile, Section
from packhost.clients.keeping import FileChange, refuse_read_only
from packhost.clients.launch import Launch, installed_command
from packhost.clients.manifests import ProposedPack, pack_id, propose_pack, upstream_block
from packhost.clients.reading import Read
from packhost.clients.servers import Server, Surroundings, read_server
from packhost.clients.settings import Additions, settings_text
from packhost.errors import ConfigInvalid, PackhostError
from packhost.kinds.mcp.pins import Pins, pins_text
from packhost.kinds.mcp.suspicion import HARMLESS, Suspicion, suspicions
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.pinned import PINS_FILE
from packhost.workspace.settings import Settings
from packhost.workspace.sources import MANIFEST_FILE

HOME: Final = ".packhost"
"""The folder of adopted packs, in the workspace."""
PROJECT_FILES: Final = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml")
"""Where clients keep a project's servers."""


@dataclass(slots=True)
class Candidate:
    """A server in a client's file: adopted, or kept as it was for the reason in `problem`."""

    file: ClientFile
    section: Section
    name: str
    server: Server | None = None
    problem: str = ""
    hint: str = ""
    same_as: Candidate | None = None
    """One that is the same server in another file, and so the same pack."""
    read: Read | None = None
    pack: ProposedPack | None = None
    doubts: tuple[Suspicion, ...] = ()
    pinned: Pins = field(default_factory=dict)

    @property
    def adopted(self) -> bool:
        """Whether it goes behind packhost."""
        return self.pack is not None or (self.same_as is not None and self.same_as.pack is not None)


def project_files(root: Path) -> list[Path]:
    """The files of clients that are in the workspace."""
    return [root / name for name in PROJECT_FILES if (root / name).is_file()]


def candidates(
    files: Sequence[ClientFile], root: Path, environ: Mapping[str, str], home: Path, settings: Settings
) -> list[Candidate]:
    """Every server of the files, packhost itself left out; one that cannot be adopted says why.

    `settings` are those of the workspace, whose names of secrets are taken.
    """
    found: list[Candidate] = []
    taken: dict[str, str | None] = dict.fromkeys(settings.secrets)
    for file in files:
        around = Surroundings(environ, root, home, file.inputs(), expands=file.client not in _LITERAL)
        for section in file.sections:
            for name, raw in file.servers(section).items():
                if not is_packhost(name, raw):
                    found.append(_candidate(Candidate(file, section, name), raw, around, taken, found))
    return found


_LITERAL: Final = frozenset({"codex", "claude-desktop"})


def _candidate(
    one: Candidate,
    raw: Any,
    around: Surroundings,
    taken: dict[str, str | None],
    earlier: Sequence[Candidate],
) -> Candidate:
    if not isinstance(raw, Mapping):
        one.problem = "its entry is no object"
        return one
    if raw.get("disabled") is True or raw.get("enabled") is False:
        one.problem = "it is switched off"
        return one
    try:
        server = read_server(one.name, raw, around, taken)
    except ConfigInvalid as error:
        one.problem, one.hint = error.message, error.hint
        return one
    one.server = server
    taken |= {secret.name: secret.value for secret in server.secrets}
    one.same_as = next((other for other in earlier if _same(other.server, server)), None)
    return one


def _same(first: Server | None, second: Server) -> bool:
    plain = [replace(one, start_timeout=None) if one else None for one in (first, second)]
    return plain[0] == plain[1]


def propose_all(found: Sequence[Candidate], root: Path, taken: Sequence[str], *, trusting: bool) -> None:
    """Put a manifest to every server that was read; `taken` are the packs that there are.

    Definitions that raise doubts are pinned only where a person looks at them (`trusting`): else they are
    withheld until somebody accepts them.
    """
    ids = [*SHIPPED_PACKS, *taken]
    for one in found:
        if one.server is None or one.read is None or one.same_as is not None:
            continue
        if one.read.error:
            one.problem = one.read.error
            continue
        pack = pack_id(one.name, ids)
        try:
            upstream = upstream_block(one.server, resources=one.read.resources, prompts=one.read.prompts)
            title = one.read.called or visible(one.name)
            one.pack = propose_pack(
                one.server,
                pack,
                one.read.pins,
                write_globs=write_globs(one.server, root),
                upstream=upstream,
                title=title,
            )
        except PackhostError as error:
            one.problem, one.hint = error.message, error.hint
            continue
        ids.append(pack)
    for one in found:
        if one.pack is not None and one.read is not None:
            one.doubts = suspicions(one.read.pins, _elsewhere(found, one))
            grave = {doubt.key for doubt in one.doubts if doubt.what not in HARMLESS}
            doubted = set() if trusting else grave
            one.pinned = {key: pin for key, pin in one.read.pins.items() if key not in doubted}


def _elsewhere(found: Sequence[Candidate], one: Candidate) -> dict[str, str]:
    return {
        tool.original: f"`{other.pack.id}`"
        for other in found
        if other is not one and other.pack is not None
        for tool in other.pack.tools
    }


def write_globs(server: Server, root: Path) -> list[str]:
    """Where a server's path arguments may write: the folders in its command line, else the workspace."""
    inside: list[str] = []
    for word in server.command[1:]:
        path = root / word
        if word and not word.startswith("-") and path.is_dir() and os.path.isabs(word) | word.startswith("."):
            relative = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
            if relative != ".." and not relative.startswith("../"):
                inside.append("**" if relative == "." else f"{relative}/**")
    plain = [glob for glob in inside if not set(glob[:-2]) & set("*?[]{}\\\n")]
    return plain if plain and "**" not in plain else ["**"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that adopting writes, and the settings' text as it is to be accepted."""

    files: tuple[FileChange, ...]
    settings: bytes
    packs: Mapping[str, Mapping[str, bytes]]
    """The sources of every new pack by the path that packhost.yaml gives it."""
    undecided: Mapping[str, Pins]
    """What is withheld of each pack until a person has looked at it."""


def plan(found: Sequence[Candidate], root: Path, config: Path, existing: bytes | None) -> Plan:
    """What is to be written so that packhost is the only server of these files.

    Raises `ConfigInvalid` where a file cannot be changed.
    """
    packs: dict[str, dict[str, bytes]] = {}
    changes: list[FileChange] = []
    for one in found:
        if one.pack is None:
            continue
        folder = root / HOME / one.pack.id
        if os.path.realpath(folder) != os.path.join(os.path.realpath(root), HOME, one.pack.id):
            raise ConfigInvalid(
                f"`{folder}` leads somewhere else, and nothing is written there",
                hint=f"take the link `{HOME}` out of the folder",
            )
        sources = {MANIFEST_FILE: one.pack.text.encode(), PINS_FILE: pins_text(one.pinned)}
        packs[f"./{HOME}/{one.pack.id}"] = sources
        for name, content in sources.items():
            if (folder / name).exists():
                raise ConfigInvalid(f"`{folder / name}` is there already", hint="move it away, or undo")
            changes.append(FileChange(folder / name, content, ours=True))
    text = settings_text(existing, additions(found)).encode()
    changes.append(FileChange(config, text))
    changes += list(_client_files(found, root))
    undecided = {one.pack.id: one.read.pins for one in found if one.pack and one.read and _withheld(one)}
    for change in changes:
        refuse_read_only(change.path)
    return Plan(tuple(changes), text, packs, undecided)


def _withheld(one: Candidate) -> bool:
    return one.read is not None and one.pinned.keys() != one.read.pins.keys()


def additions(found: Sequence[Candidate]) -> Additions:
    """What packhost.yaml has to say for the adopted servers."""
    packs = [one.pack for one in found if one.pack is not None]
    servers = [one.server for one in found if one.pack is not None and one.server is not None]
    return Additions(
        packs=tuple(f"./{HOME}/{pack.id}" for pack in packs),
        scopes=tuple(dict.fromkeys(scope for pack in packs for scope in pack.scopes)),
        secrets={secret.name: f"env:{secret.variable}" for server in servers for secret in server.secrets},
        advisory=bool(servers),
    )


def _client_files(found: Sequence[Candidate], root: Path) -> Iterator[FileChange]:
    for file in dict.fromkeys(one.file for one in found):
        mine = [one for one in found if one.file is file]
        touched = [
            section for section in file.sections if any(one.adopted for one in mine if one.section == section)
        ]
        for section in touched:
            adopted = [one for one in mine if one.section == section and one.adopted]
            for one in adopted:
                file.drop(section, one.name)
            file.put(section, "packhost", entry_for(section.client, _launch(root, adopted)))
        if touched:
            yield FileChange(file.path, file.changed, touched[0].path)


def _launch(root: Path, adopted: Sequence[Candidate]) -> Launch:
    command, *before = installed_command()
    secrets = [secret for one in adopted if one.server is not None for secret in one.server.secrets]
    return Launch(
        command,
        (*before, "serve", "-w", str(root)),
        tuple(dict.fromkeys(secret.variable for secret in secrets if not secret.standing)),
        {secret.variable: secret.value or "" for secret in secrets if secret.standing},
    )


def as_json(one: Candidate) -> dict[str, Any]:
    """What a program is told of a server."""
    told: dict[str, Any] = {
        "name": one.name,
        "file": str(one.file.named),
        "client": one.section.client,
        "adopted": one.adopted,
    }
    if one.server is not None:
        told |= {"runs": one.server.where, "secrets": [secret.name for secret in one.server.secrets]}
        told |= {"cwd": one.server.cwd, "env": dict(one.server.env), "headers": dict(one.server.headers)}
    pack = one.pack or (one.same_as.pack if one.same_as else None)
    if pack is None:
        return told | {"problem": one.problem, "hint": one.hint}
    return told | {
        "pack": pack.id,
        "tools": [
            {
                "name": tool.name,
                "upstream_name": tool.original,
                "permission": tool.proposal.permission,
                "why": tool.proposal.why,
                "paths": ["/".join(path) for path in tool.proposal.paths],
                "notes": list(tool.notes),
            }
            for tool in pack.tools
        ],
        "left_out": [{"tool": tool, "why": why} for tool, why in pack.left_out],
        "doubts": [{"of": doubt.key, "what": doubt.what, "text": doubt.text} for doubt in one.doubts],
    }
