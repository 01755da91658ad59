"""Where packs are: shipped ones, distributions with an entry point, and accepted copies of folders.

Nothing here imports a pack. An entry point of the group `packhost.packs` names the pack and its package;
the manifest is the `pack.yaml` of that package among the distribution's files.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packhost.errors import ConfigInvalid, ManifestInvalid, NotFound, PackhostError
from packhost.manifest.load import LoadedManifest, read_manifest
from packhost.manifest.model import PackManifest
from packhost.manifest.problems import Problem, problems_of
from packhost.names import nearest
from packhost.shipped import SHIPPED_PACKS, shipped_manifest
from packhost.workspace.installed import InstalledPacks
from packhost.workspace.sources import MANIFEST_FILE, digest_of, gather_sources
from packhost.workspace.workspace import EnabledPack

GROUP = "packhost.packs"
_SHIPPED_PACKAGE = "packhost_packs"


@dataclass(frozen=True, slots=True)
class FoundPack:
    """A pack with a sound manifest, and where its code lies."""

    enabled: EnabledPack
    loaded: LoadedManifest
    code: str
    """SHA-256 of the code."""
    package: str | None
    """The package of an installed pack."""
    shipped: bool

    @property
    def manifest(self) -> PackManifest:
        """The pack's manifest."""
        return self.loaded.manifest

    @property
    def contributes(self) -> bool:
        """Whether its hooks may run in the host."""
        return self.package is not None and (self.shipped or self.enabled.trust)


class EntryPoints(InstalledPacks):
    """Installed packs by the entry points of this environment, looked at when one is first asked for."""

    def __init__(self, distributions: Iterable[importlib.metadata.Distribution] | None = None) -> None:
        self._distributions = distributions

    @cached_property
    def claims(self) -> dict[str, list[importlib.metadata.EntryPoint]]:
        """Every entry point of the group by the name that it claims, those of packhost itself left out."""
        found: dict[str, list[importlib.metadata.EntryPoint]] = {}
        given = self._distributions
        points = (
            importlib.metadata.entry_points(group=GROUP)
            if given is None
            else [point for one in given for point in one.entry_points.select(group=GROUP)]
        )
        for point in points:
            if point.name not in SHIPPED_PACKS or not point.value.startswith(f"{_SHIPPED_PACKAGE}."):
                found.setdefault(point.name, []).append(point)
        return found

    def names(self) -> list[str]:
        """Every pack that could be enabled by its id."""
        return [*SHIPPED_PACKS, *(name for name in self.claims if name not in SHIPPED_PACKS)]

    def locate(self, pack: str) -> tuple[Path, str]:
        """The manifest's file of an installed pack, and its package.

        Raises `NotFound` for a name that nothing claims, `ConfigInvalid` for one that several distributions
        claim, and `ManifestInvalid` for a distribution without a manifest.
        """
        if pack in SHIPPED_PACKS:
            return shipped_manifest(pack), f"{_SHIPPED_PACKAGE}.{pack.replace('-', '_')}"
        points = self.claims.get(pack, [])
        if not points:
            near = nearest(pack, self.names(), 1)
            hint = f"did you mean `{near[0]}`?" if near else "install it, or name its folder with `path:`"
            raise NotFound(f"no pack `{pack}` is installed", hint=hint)
        if len(points) > 1:
            owners = " and ".join(f"`{_owner(point)}`" for point in points)
            raise ConfigInvalid(f"the pack `{pack}` is claimed by {owners}", hint="uninstall one of them")
        return _manifest_of(points[0]), points[0].value

    def manifest(self, pack: str) -> PackManifest | None:
        """The manifest of a pack, or `None` when there is no sound one."""
        try:
            return self.read(pack)[0].manifest
        except PackhostError:
            return None

    def read(self, pack: str) -> tuple[LoadedManifest, str]:
        """The manifest of an installed pack, and its package.

        Raises `PackhostError` as `locate` does, and for a manifest that is broken or of another pack.
        """
        path, package = self.locate(pack)
        shipped = pack in SHIPPED_PACKS
        # of which kinds there are, an installed pack may itself bring some: the registry looks at that
        name, kinds = (f"manifests/{path.name}", None) if shipped else (str(path), ())
        loaded = read_manifest(path, shipped=shipped, name=name, kinds=kinds)
        if loaded.manifest.id != pack:
            raise ManifestInvalid(
                f"the pack `{pack}` has a manifest whose id is `{loaded.manifest.id}`",
                place=loaded.document.place(("id",)),
                hint="give the entry point and the manifest one name",
            )
        return loaded, package


def _owner(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _manifest_of(point: importlib.metadata.EntryPoint) -> Path:
    inside = f"{point.value.replace('.', '/')}/{MANIFEST_FILE}"
    files = [file for file in (point.dist.files or () if point.dist else ()) if file.name == MANIFEST_FILE]
    exact = [file for file in files if str(file) == inside] or (files if len(files) == 1 else [])
    if exact:
        return Path(str(exact[0].locate()))
    folder = package_folder(point.value)
    if folder is None or not (folder / MANIFEST_FILE).is_file():
        raise ManifestInvalid(
            f"the distribution `{_owner(point)}` has no `{inside}` for its pack `{point.name}`",
            hint=f"put {MANIFEST_FILE} into the package `{point.value}` and list it as package data",
        )
    return folder / MANIFEST_FILE


def package_folder(package: str) -> Path | None:
    """Where a package lies, found without importing it or its parents."""
    top, *inner = package.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for name in inner:
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return Path(locations[0]) if locations else None


def _installed_code(package: str) -> str:
    folder = package_folder(package)
    try:
        return digest_of(gather_sources(folder)) if folder is not None else ""
    except PackhostError:
        return hashlib.sha256(str(folder).encode()).hexdigest()


def find_packs(
    enabled: Sequence[EnabledPack], installed: EntryPoints
) -> tuple[tuple[FoundPack, ...], tuple[Problem, ...]]:
    """The enabled packs whose manifests are sound, and what keeps the others out.

    A name that two packs claim keeps out both, or the one that is not shipped.
    """
    found: list[FoundPack] = []
    problems: list[Problem] = []
    for pack in enabled:
        try:
            found.append(_find(pack, installed))
        except PackhostError as error:
            problems += problems_of(error, pack.id)
    clashing = _clashes(found, problems)
    return tuple(pack for pack in found if pack not in clashing), tuple(problems)


def _find(pack: EnabledPack, installed: EntryPoints) -> FoundPack:
    if pack.path is None:
        loaded, package = installed.read(pack.id)
        return FoundPack(pack, loaded, _installed_code(package), package, pack.id in SHIPPED_PACKS)
    loaded = read_manifest(pack.path / MANIFEST_FILE, name=f"{pack.id}/{MANIFEST_FILE}")
    return FoundPack(pack, loaded, pack.sha256, None, False)


def _clashes(found: Sequence[FoundPack], problems: list[Problem]) -> list[FoundPack]:
    left_out: list[FoundPack] = []
    for index, pack in enumerate(found):
        for other in found[:index]:
            if pack.manifest.id == other.manifest.id:
                message = (
                    f"the pack `{pack.manifest.id}` is claimed by {_origin(other)} and by {_origin(pack)}"
                )
                problems.append(
                    Problem(
                        "CONFIG_INVALID", message, "take one of them out of `packs`", pack=pack.manifest.id
                    )
                )
                left_out += [one for one in (other, pack) if not one.shipped]
    return left_out


def _origin(pack: FoundPack) -> str:
    if pack.shipped:
        return "packhost itself"
    return f"the package `{pack.package}`" if pack.package else f"the folder `{pack.enabled.origin}`"
