"""From a workspace to one generation of the gate's configuration, for a host and for what-if questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import packhost
from packhost.errors import ConfigInvalid
from packhost.gate.catalog import build_catalog
from packhost.gate.configuration import Autonomy, Configuration, Limits, Terms
from packhost.gate.hidden import TENANT
from packhost.kinds.assets import AssetService
from packhost.kinds.base import Kind, Tool
from packhost.kinds.code import CodeKind
from packhost.kinds.http import HttpKind
from packhost.kinds.mcp.kind import McpKind
from packhost.kinds.providing import Announce, ProvidedKind, Providing, Provision, provision
from packhost.kinds.python import PythonKind
from packhost.packs.discover import EntryPoints, find_packs
from packhost.packs.plugins import Provided, load_plugins
from packhost.packs.registry import Registry, build_registry
from packhost.rules.globs import compile_glob
from packhost.sandbox.level import Enforcement
from packhost.workspace.root import CONFIG_FILE, Root, find_root
from packhost.workspace.supposed import SupposedWorkspace
from packhost.workspace.workspace import Workspace


def configure(
    workspace: Workspace,
    installed: EntryPoints,
    kinds: Sequence[Kind],
    *,
    tenant: str | None = None,
    assets: AssetService | None = None,
    announce: Announce = lambda _: None,
) -> tuple[Configuration, Provided]:
    """What holds in the workspace as it stands, and what its packs provide; `kinds` are the host's own.

    `tenant` is the name that hosts have for the workspace together; left out, it is that of its path.
    `assets` is where a handle leads; without it none does. `announce` tells clients that what packs have
    beside their tools has changed.
    """
    found, problems = find_packs(workspace.enabled(), installed)
    provided = load_plugins(found, kinds, announce)
    registry = build_registry(
        workspace, provided.kinds, found=found, problems=(*problems, *provided.problems)
    )
    workspace.secrets.add_sources(provided.secret_sources)
    provisions = _provisions(registry, provided, announce)
    beside = [ProvidedKind("resources", provisions), ProvidedKind("prompts", provisions)]
    every: dict[str, Kind] = {**provided.kinds, **{kind.name: kind for kind in beside}}
    approvals, autonomy, limits = workspace.approvals, workspace.autonomy, workspace.limits
    variables = {TENANT: {"id": tenant or workspace.root.hash}, **workspace.variables}
    configuration = Configuration(
        catalog=build_catalog(registry, every, workspace.bounds(), workspace.generation, variables, assets),
        policies=workspace.policies(),
        limits=Limits(**{limit.name: getattr(limits, limit.name) for limit in fields(Limits)}),
        autonomy=Autonomy(autonomy.default, autonomy.maximum),
        terms=Terms(approvals.timeout, approvals.unattended, approvals.always_allow),
        require=workspace.require,
        variables=variables,
        sections={pack.id: workspace.config(pack.config_key) for pack in registry.packs.values()},
        resolve_secret=workspace.secrets.resolve,
        redact=workspace.secrets.redact,
        redacting=workspace.secrets.stream,
        root_path=str(workspace.root.path),
        provisions=provisions,
        upstreams=frozenset(id for id, pack in registry.packs.items() if pack.upstream is not None),
        problems=tuple(str(problem) for problem in (*workspace.problems, *registry.problems)),
        warnings=(*(str(warning) for warning in registry.warnings), *_exposed(workspace)),
    )
    return configuration, provided


def _provisions(registry: Registry, provided: Provided, announce: Announce) -> dict[str, Provision]:
    """What packs have beside their tools: their own hook goes before their tools' kinds."""
    found: dict[str, Provision] = {}
    for id, pack in registry.packs.items():
        provider = provided.providers.get(id)
        for kind in provided.kinds.values():
            if provider is None and isinstance(kind, Providing):
                provider = kind.provider(pack, registry.manifests[id], announce)
        if provider is not None:
            found[id] = provision(pack, provider)
    return found


def _exposed(workspace: Workspace) -> Iterator[str]:
    """What of packhost's own code tools may write: it runs in the host, within no bound at all."""
    root = os.path.realpath(workspace.root.path)
    for folder in sorted({os.path.realpath(path) for path in (sys.prefix, packhost.__path__[0])}):
        if not folder.startswith(f"{root}/"):
            continue
        try:
            inside = compile_glob(f"{folder[len(root) + 1 :]}/**")
        except ConfigInvalid:  # a name that no glob can spell
            inside = compile_glob("**")
        if all(any(glob.overlaps(inside) for glob in layer.globs("write")) for layer in workspace.bounds()):
            yield (
                f"packhost runs from `{folder}`, in this workspace, where the bound lets tools write: what "
                "they put there runs unbound at the next start "
                "(install packhost elsewhere, or narrow the bound)"
            )


class _Asked(PythonKind):
    """The kind `python` where nothing runs: it starts no process and proves nothing of the machine."""

    def __init__(self) -> None:
        """Nothing is opened."""

    def enforcement(self, tool: Tool) -> Enforcement:
        """The least that is claimed of a tool's pack."""
        return "host" if tool.pack.shipped else "advisory"


@dataclass(frozen=True, slots=True)
class Supposition:
    """A configuration to ask questions of; nothing is run with it."""

    root: Root
    workspace: Workspace
    configuration: Configuration


@contextmanager
def supposed(start: Path | None, file: Path | None = None) -> Iterator[Supposition]:
    """What would hold if `file`, by default the workspace's own packhost.yaml, were accepted as it stands.

    Nothing is written and no pack's code is imported but that of shipped ones. What the machine can
    enforce is left out of it, so that the answers are the same everywhere.

    Raises `PackhostError` for a file that cannot be read or is broken.
    """
    installed = EntryPoints()
    with Root(find_root(start or Path.cwd())) as root:
        name = str(file) if file is not None else CONFIG_FILE
        workspace = SupposedWorkspace(root, file or root.path / CONFIG_FILE, name, installed=installed)
        yield _supposition(root, workspace, installed)


@contextmanager
def present(start: Path | None) -> Iterator[Supposition]:
    """What holds now, between what was accepted and the file, wherever it is asked."""
    installed = EntryPoints()
    with Root(find_root(start or Path.cwd())) as root:
        yield _supposition(root, Workspace(root, installed=installed), installed)


def _supposition(root: Root, workspace: Workspace, installed: EntryPoints) -> Supposition:
    code = CodeKind()
    try:
        configuration, _ = configure(workspace, installed, [_Asked(), code, HttpKind(), McpKind(root.path)])
    finally:
        code.let_go()
    return Supposition(root, workspace, replace(configuration, require="advisory"))
