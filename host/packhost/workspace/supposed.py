"""A workspace as it would be if a file were accepted: to ask what it would allow, and to run nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packhost.errors import ConfigInvalid, PackhostError, Place
from packhost.manifest.problems import Problem, problems_of
from packhost.manifest.yaml import MAX_BYTES
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.config import load_config
from packhost.workspace.consent import Accepted, PinnedPack
from packhost.workspace.installed import InstalledPacks, manifest_in
from packhost.workspace.paths import PathPacks
from packhost.workspace.root import CONFIG_FILE, Root
from packhost.workspace.sources import digest_of, read_sources
from packhost.workspace.workspace import EnabledPack, Workspace


class SupposedWorkspace(Workspace):
    """`file` counts as accepted and as the workspace's own file; packs by path are read where they lie.

    `name` is the file as messages call it. Raises `ConfigInvalid` when it cannot be read or is broken.
    """

    def __init__(
        self,
        root: Root,
        file: Path,
        name: str = CONFIG_FILE,
        *,
        environ: Mapping[str, str] | None = None,
        installed: InstalledPacks | None = None,
    ) -> None:
        try:
            with file.open("rb") as opened:
                self._supposed = opened.read(MAX_BYTES + 1)
        except OSError as error:
            why = (error.strerror or "it failed").lower()
            raise ConfigInvalid(f"`{name}` cannot be read: {why}", place=Place(name)) from None
        self._name = name
        super().__init__(root, environ=environ, installed=installed)

    def _path_packs(self, root: Root) -> PathPacks:
        self._in_place = _InPlace(root)
        return self._in_place

    def _load_accepted(self, problems: list[Problem]) -> None:
        self._accepted = load_config(self._supposed, self._name, self._file_manifest)
        packs: dict[str, PinnedPack] = {}
        for path in (pack.path for pack in self.accepted.packs if pack.path):
            try:
                packs[path] = self._in_place.pin(path)
            except PackhostError as error:
                problems += problems_of(error)
        self.consent = Accepted(self._supposed, 0.0, "", "supposed", packs)

    def _load_file(self, problems: list[Problem]) -> None:
        self._file = self._accepted

    def _check_packs(self, problems: list[Problem]) -> None:
        """Nothing is compared: what lies in the folders is what counts."""

    def enabled(self) -> list[EnabledPack]:
        """The packs of the file; none from elsewhere is trusted, since nobody has accepted it."""
        return [replace(pack, trust=pack.id in SHIPPED_PACKS) for pack in super().enabled()]


class _InPlace(PathPacks):
    """Packs by path, taken from where they lie."""

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self._places: dict[str, Path] = {}

    def pin(self, path: str) -> PinnedPack:
        """The pack as if it were accepted; raises `ConfigInvalid` when its sources cannot be read."""
        folder = self.folder(path)
        digest = digest_of(read_sources(folder))
        self._places[digest] = folder
        manifest = manifest_in(folder)
        return PinnedPack(manifest.id if manifest else path, manifest.version if manifest else "", digest)

    def copy(self, pack: PinnedPack) -> Path:
        """The folder itself."""
        return self._places[pack.sha256]
