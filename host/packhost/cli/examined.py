"""`packhost doctor UPSTREAM`: which server is meant, and what was found of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import click

from packhost.cli.adopted import what_runs
from packhost.cli.bars import progress_bar
from packhost.cli.checks import Check
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.clients import adopting
from packhost.clients.examining import Examination, Examiner, Run
from packhost.clients.forms import ClientFile
from packhost.clients.manifests import upstream_block
from packhost.errors import NotFound, PackhostError
from packhost.kinds.mcp.pins import Pins, compare, read_pins
from packhost.manifest.load import load_manifest
from packhost.manifest.upstream import KIND, UpstreamSpec, address_of
from packhost.names import nearest
from packhost.workspace.observed import Observed
from packhost.workspace.pinned import PINS_FILE
from packhost.workspace.root import Root, find_root
from packhost.workspace.sources import MANIFEST_FILE
from packhost.workspace.workspace import Workspace

_NOTHING: Final = "none was run; `--run TOOL=JSON` runs one, such as one that only reads"


@dataclass(frozen=True, slots=True)
class _Target:
    name: str
    spec: UpstreamSpec
    resolve: Callable[[str], str]
    tools: dict[str, str]
    """The server's own names by those in the manifest."""
    pinned: Pins | None = None
    shown: tuple[str, ...] = ()
    """What is run, where nobody has accepted that: a client's file may have come with the project."""


def examined(
    workspace: Path | None, upstream: str, runs: Sequence[str], patience: float, *, agreed: bool = False
) -> Iterator[Check]:
    """What is found of a server; before one of a client's file is started, a person has to agree.

    Raises `NotFound` for one that is not known here, `PackhostError` where nobody agreed.
    """
    with Root(find_root(workspace or Path.cwd())) as root:
        held = Workspace(root)
        target = _target(held, upstream)
        wanted = [_run(one, target) for one in runs]
        if target.shown:
            _agree(target, agreed)
        examiner = Examiner(target.name, target.spec, root.path, target.resolve, patience)
        with progress_bar(f"looking at {target.name}"):
            found: Examination = anyio.run(examiner.examine, wanted)
        for finding in found.findings:
            yield Check(finding.name, finding.state, finding.text)
        if not wanted:
            yield Check("calls", "note", _NOTHING)
        if target.tools and found.pins is not None:
            yield _against(target, found.pins, Observed(root.state))


def _agree(target: _Target, agreed: bool) -> None:
    refuse_agents(f"packhost doctor {target.name}")
    if agreed:
        return
    with Terminal(f"starting `{target.name}`") as terminal:
        terminal.write("".join(f"  {line}\n" for line in target.shown))
        if not terminal.confirm("Start this as your client would, and look at it?"):
            raise PackhostError("nothing was started", code="NOT_ACCEPTED", hint="")


def _against(target: _Target, live: Pins, observed: Observed) -> Check:
    changes = compare(target.pinned or {}, live)
    if not changes:
        observed.forget(target.name)
        return Check("definitions", "ok", "as they were accepted")
    observed.remember(target.name, live)
    text = f"{len(changes)} are not as they were accepted: `packhost accept` shows them"
    return Check("definitions", "note", text)


def _target(held: Workspace, upstream: str) -> _Target:
    packs = {one.name: one for one in _packs(held)}
    if upstream in packs:
        return packs[upstream]
    servers = {one.name: one for one in _servers(held)}
    if upstream in servers:
        return servers[upstream]
    if address_of(upstream) is not None:
        return _Target(upstream, UpstreamSpec(url=upstream), _no_secret, {})
    near = nearest(upstream, [*packs, *servers], 1)
    known = ", ".join(f"`{name}`" for name in [*packs, *servers]) or "none"
    hint = f"did you mean `{near[0]}`?" if near else f"those that are known here: {known}; or give a URL"
    raise NotFound(f"there is no upstream `{upstream}`", hint=hint)


def _packs(held: Workspace) -> Iterator[_Target]:
    for pack in held.enabled():
        if pack.path is None:
            continue
        with suppress(PackhostError):
            manifest = load_manifest(pack.path / MANIFEST_FILE)
            if manifest.upstream is not None:
                tools = {
                    tool.name: str(tool.config.get("upstream_name") or tool.name)
                    for tool in manifest.tools
                    if tool.kind == KIND
                }
                pinned = _pins(pack.path)
                yield _Target(manifest.id, manifest.upstream, held.secrets.resolve, tools, pinned)


def _pins(folder: Path) -> Pins | None:
    try:
        return read_pins((folder / PINS_FILE).read_bytes())
    except (OSError, PackhostError):
        return None


def _servers(held: Workspace) -> Iterator[_Target]:
    root = held.root.path
    files = []
    for path in adopting.project_files(root):
        with suppress(PackhostError):
            files.append(ClientFile(path, root))
    for one in adopting.candidates(files, root, os.environ, Path.home(), held.file):
        if one.server is not None:
            values = {secret.name: secret.value or "" for secret in one.server.secrets}
            with suppress(PackhostError):
                block: dict[str, Any] = upstream_block(one.server, resources=False, prompts=False)
                spec, shown = UpstreamSpec.model_validate(block), tuple(what_runs(one.server))
                yield _Target(one.name, spec, values.__getitem__, {}, shown=shown)


def _no_secret(name: str) -> str:
    raise NotFound(f"there is no secret `{name}`")


def _run(text: str, target: _Target) -> Run:
    tool, _, given = text.partition("=")
    try:
        arguments = json.loads(given or "{}")
    except ValueError:
        raise click.BadParameter(f"`{given}` is not JSON", param_hint="--run") from None
    if not isinstance(arguments, dict):
        raise click.BadParameter("arguments are an object", param_hint="--run")
    return Run(target.tools.get(tool, tool), arguments)
