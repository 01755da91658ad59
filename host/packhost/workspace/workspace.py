"""A workspace as it holds now: what was last accepted and the file as it stands, both at once.

Precedence: each of the two is a layer, and a call passes both; the stricter limit, level and requirement
counts. What cannot be compared (models and other sections, secrets, variables, store, approvals, packs by
path) is read from the accepted copy alone. A pack is enabled when both name it.

A broken edit keeps the last good file. At the start a broken file counts as equal to the accepted copy;
where nothing was accepted either, the workspace is `broken` and enables no pack.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packhost.errors import ConfigInvalid, PackhostError
from packhost.manifest.load import load_manifest
from packhost.manifest.model import PackManifest
from packhost.manifest.problems import Problem, problems_of
from packhost.rules.autonomy import lowest
from packhost.rules.policy import Policy, Rule
from packhost.rules.scopes import Layer
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.config import ConfigFile, load_config
from packhost.workspace.consent import (
    ACCEPTED_FILE,
    PACKS_FOLDER,
    Accepted,
    PinnedPack,
    load_accepted,
    save_accepted,
    seen_digest,
)
from packhost.workspace.differences import STRICTNESS, Change, widening
from packhost.workspace.enabled import EnabledPack
from packhost.workspace.files import look, read_file, write_file
from packhost.workspace.installed import InstalledPacks, manifest_in
from packhost.workspace.lock import LOCK_FILE, lock_text
from packhost.workspace.paths import FileChange, PathPacks
from packhost.workspace.root import CONFIG_FILE, Root
from packhost.workspace.secrets import Secrets, SecretSource
from packhost.workspace.settings import (
    ApprovalSettings,
    AutonomySettings,
    LimitSettings,
    PackSettings,
    Requirement,
    Settings,
    default_settings,
)
from packhost.workspace.sources import MANIFEST_FILE, Sources, digest_of, keep_sources, read_sources

__all__ = ["EnabledPack", "Workspace"]


class Workspace:
    """The configuration of one workspace, kept up to date by `refresh`.

    `installed` finds manifests of installed packs, for the sections that they own; `sources` are further
    sources of secrets.
    """

    def __init__(
        self,
        root: Root,
        *,
        environ: Mapping[str, str] | None = None,
        installed: InstalledPacks | None = None,
        sources: Mapping[str, SecretSource] | None = None,
    ) -> None:
        self.root = root
        self._accepted_at = str(root.state / ACCEPTED_FILE)
        self.generation = 0
        """Grows by one whenever something that a call depends on has changed."""
        self.problems: tuple[Problem, ...] = ()
        self.broken: Problem | None = None
        """Set when the file is broken and nothing was accepted: only the host's own tools are on offer."""
        self.consent: Accepted | None = None
        """What was last accepted, with when and by whom; `None` when nothing was."""
        self._installed = installed or InstalledPacks()
        self._defaults = ConfigFile(default_settings(), None)
        self._accepted = self._defaults
        self._file = self._defaults
        self._good: ConfigFile | None = None
        self._packs = self._path_packs(root)
        self.secrets = Secrets({}, base=root.path, environ=environ, sources=sources)
        self._marks = self._look()
        self._load()

    def _path_packs(self, root: Root) -> PathPacks:
        return PathPacks(root)

    # --- following the files -----------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read again what has changed on disk since the last look; whether anything did.

        Costs two stats where nothing has, and once a second one for each file of a pack by path. Never
        raises for a file's content: see `problems`.
        """
        marks = self._look()
        if marks == self._marks:
            return False
        return self._reload()

    def reload(self) -> bool:
        """Read everything again, whatever its looks; whether anything has changed."""
        return self._reload()

    def _reload(self) -> bool:
        self._marks = self._look()
        before = self._state()
        self._load()
        changed = self._state() != before
        self.generation += changed
        return changed

    def _look(self) -> tuple[object, ...]:
        return look(self.root.descriptor, CONFIG_FILE), look(None, self._accepted_at), self._packs.mark()

    def _state(self) -> tuple[object, ...]:
        digests = self._accepted.digest, self._file.digest, tuple(self._packs.current.items())
        return *digests, self.consent, self.problems, self.broken

    def _load(self) -> None:
        problems: list[Problem] = []
        self.broken = None
        self._load_accepted(problems)
        self._load_file(problems)
        self._check_packs(problems)
        self.problems = tuple(problems)
        self.secrets.replace_references(self._accepted.settings.secrets)

    def _load_accepted(self, problems: list[Problem]) -> None:
        self._accepted, self.consent = self._defaults, None
        try:
            self.consent = load_accepted(self.root.state)
            if self.consent is not None and self.consent.source is not None:
                name = f"{CONFIG_FILE} (accepted)"
                self._accepted = load_config(self.consent.source, name, self._accepted_manifest)
        except PackhostError as error:
            self.consent = None
            problems += problems_of(error)

    def _load_file(self, problems: list[Problem]) -> None:
        try:
            source = read_file(self.root.descriptor, CONFIG_FILE)
            if source is None:
                self._file = self._defaults
            elif source == self._accepted.source:
                self._file = load_config(source, CONFIG_FILE, self._accepted_manifest)
            else:
                self._file = load_config(source, CONFIG_FILE, self._file_manifest)
            self._good = self._file
        except PackhostError as error:
            found = problems_of(error)
            problems += found
            if self._good is not None:
                self._file = self._good
            elif self.consent is not None:
                self._file = self._accepted
            else:
                self.broken = found[0]

    def _check_packs(self, problems: list[Problem]) -> None:
        paths = [pack.path for pack in (*self.file.packs, *self.accepted.packs) if pack.path]
        problems += self._packs.check(paths, self._pinned)

    @property
    def _pinned(self) -> Mapping[str, PinnedPack]:
        return self.consent.packs if self.consent else {}

    def _accepted_manifest(self, pack: PackSettings) -> PackManifest | None:
        if pack.path is None:
            return self._installed.manifest(pack.name)
        pinned = self._pinned.get(pack.path)
        return manifest_in(self._packs.copy(pinned)) if pinned else None

    def _file_manifest(self, pack: PackSettings) -> PackManifest | None:
        if pack.path is None:
            return self._installed.manifest(pack.name)
        return manifest_in(self._packs.folder(pack.path))

    # --- what holds now ----------------------------------------------------------------------------

    @property
    def accepted(self) -> Settings:
        """The settings last accepted, else the defaults."""
        return self._accepted.settings

    @property
    def file(self) -> Settings:
        """The settings in the file as it stands, or in its last good state."""
        return self._file.settings

    @property
    def pending(self) -> bool:
        """Whether the file asks for more than was accepted."""
        return bool(self.changes())

    def changes(self) -> tuple[Change, ...]:
        """What would become possible if the file were accepted as it stands."""
        pinned, current = self._pinned, self._packs.current
        changed = {
            pack.path: pack.path not in pinned or current.get(pack.path) != pinned[pack.path].sha256
            for pack in self.file.packs
            if pack.path
        }
        return tuple(widening(self.accepted, self.file, changed))

    @property
    def seen(self) -> str:
        """What stands for exactly the file and sources that `changes` speaks of; `accept` takes it."""
        return seen_digest(self._file.source, self._digests(self.file))

    def seen_with(self, sources: Mapping[str, Sources]) -> str:
        """As `seen`, with files of packs by path, by the path in the file, as they are going to be."""
        digests = self._digests(self.file)
        for path, files in sources.items():
            digests[path] = digest_of({**read_sources(self._packs.folder(path)), **files})
        return seen_digest(self._file.source, digests)

    def pack_folders(self) -> dict[str, Path]:
        """The folder of each pack by path, by the path in the file."""
        return {pack.path: self._packs.folder(pack.path) for pack in self.file.packs if pack.path}

    def pack_changes(self) -> dict[str, tuple[FileChange, ...]]:
        """How each pack by path that waits differs from its accepted copy, by the path in the file."""
        pinned, current = self._pinned, self._packs.current
        waiting = [
            pack.path
            for pack in self.file.packs
            if pack.path and (pack.path not in pinned or current.get(pack.path) != pinned[pack.path].sha256)
        ]
        return {path: self._packs.changes(path, pinned.get(path)) for path in waiting}

    def _digests(self, settings: Settings) -> dict[str, str]:
        return {pack.path: self._packs.current.get(pack.path, "") for pack in settings.packs if pack.path}

    def bounds(self) -> tuple[Layer, ...]:
        """The workspace's bound in each configuration, one layer when they are equal."""
        return self._layers("workspace bound", ("bound",), self.accepted.bound, self.file.bound)

    def _layers(
        self,
        name: str,
        path: tuple[str | int, ...],
        accepted: Sequence[str],
        file: Sequence[str],
        accepted_path: tuple[str | int, ...] | None = None,
    ) -> tuple[Layer, ...]:
        if set(accepted) == set(file):
            return (self._file.layer(name, path, tuple(file)),)
        return (
            self._accepted.layer(f"{name} (accepted)", accepted_path or path, tuple(accepted)),
            self._file.layer(f"{name} ({CONFIG_FILE})", path, tuple(file)),
        )

    def policies(self) -> tuple[Policy, ...]:
        """The policy of each configuration, one when they are equal; each decides, the strictest counts."""
        if self.accepted.policy == self.file.policy:
            return (self._file.policy,)
        return self._accepted.policy, self._file.policy

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the file, with their places."""
        return self._file.rules

    @property
    def limits(self) -> LimitSettings:
        """The smaller of each limit."""
        pairs = {
            key: (getattr(self.accepted.limits, key), getattr(self.file.limits, key))
            for key in LimitSettings.model_fields
        }
        return LimitSettings(**{key: min(pair) for key, pair in pairs.items()})

    @property
    def autonomy(self) -> AutonomySettings:
        """The lower maximum, and the lower default within it."""
        maximum = lowest(self.accepted.autonomy.maximum, self.file.autonomy.maximum)
        default = lowest(self.accepted.autonomy.default, self.file.autonomy.default, maximum)
        return AutonomySettings(default=default, maximum=maximum)

    @property
    def require(self) -> Requirement:
        """The stricter requirement of enforcement for packs that are not shipped."""
        return max(
            self.accepted.enforcement.require, self.file.enforcement.require, key=STRICTNESS.__getitem__
        )

    @property
    def approvals(self) -> ApprovalSettings:
        """How people are asked, as accepted."""
        return self.accepted.approvals

    @property
    def variables(self) -> Mapping[str, Any]:
        """Values of hidden parameters, as accepted."""
        return self.accepted.variables

    @property
    def store(self) -> str:
        """Where records are kept, as accepted."""
        return self.accepted.store

    def config(self, section: str | None) -> Mapping[str, Any]:
        """A pack's own section, as accepted; empty when there is none."""
        return self.accepted.sections.get(section, {}) if section else {}

    def enabled(self) -> list[EnabledPack]:
        """The packs that both configurations enable; none while the workspace is `broken`."""
        if self.broken is not None:
            return []
        standing = {pack.name: (index, pack) for index, pack in enumerate(self.file.packs)}
        found = []
        for index, pack in enumerate(self.accepted.packs):
            if pack.name in standing:
                one = self._enabled(index, pack, *standing[pack.name])
                found += [one] if one else []
        return found

    def _enabled(self, index: int, pack: PackSettings, at: int, other: PackSettings) -> EnabledPack | None:
        trust = pack.trust and other.trust
        layers = self._narrowing(index, pack, at, other)
        if pack.path is None:
            return EnabledPack(pack.name, None, trust or pack.name in SHIPPED_PACKS, layers)
        pinned = self._pinned.get(pack.path)
        if pinned is None or not self._packs.kept(pinned):
            return None
        return EnabledPack(pinned.id, self._packs.copy(pinned), trust, layers, pinned.sha256, pack.path)

    def _narrowing(self, index: int, pack: PackSettings, at: int, other: PackSettings) -> tuple[Layer, ...]:
        name = f"pack entry `{pack.name}`"
        here, there = ("packs", at, "scopes"), ("packs", index, "scopes")
        if pack.scopes is not None and other.scopes is not None:
            return self._layers(name, here, pack.scopes, other.scopes, there)
        if pack.scopes is not None:
            return (self._accepted.layer(f"{name} (accepted)", there, pack.scopes),)
        return (self._file.layer(name, here, other.scopes),) if other.scopes is not None else ()

    # --- consent -----------------------------------------------------------------------------------

    def accept(
        self,
        *,
        by: str,
        channel: str,
        seen: str | None = None,
        with_code: bool = True,
        signed: tuple[float, str] | None = None,
    ) -> None:
        """Accept the file as it stands, and copies of its packs' sources; live at once.

        `seen` is the workspace's `seen` at the time when a person was shown `changes`; `with_code` says
        whether that person could accept changes that bring code; `signed` is when, and the signature.

        Raises `PackhostError` (`NOT_ACCEPTED`) when the file or a source is no longer what was seen, or a
        change brings code and may not, and `ConfigInvalid` when the file or a pack is broken.
        """
        self._reload()
        if self.root.moved:
            raise _refused("another folder lies in the workspace's place now", "start this host again there")
        source = read_file(self.root.descriptor, CONFIG_FILE)
        config = (
            load_config(source, CONFIG_FILE, self._file_manifest) if source is not None else self._defaults
        )
        paths = [pack.path for pack in config.settings.packs if pack.path]
        taken = {path: read_sources(self._packs.folder(path)) for path in paths}
        digests = {path: digest_of(sources) for path, sources in taken.items()}
        now = seen_digest(source, digests)
        if now != self.seen or (seen is not None and now != seen):
            raise _refused(
                "packhost.yaml or a pack has changed since it was shown", "look at it again, then accept"
            )
        if not with_code and any(change.code for change in self.changes()):
            raise _refused("a change brings code", "run `packhost accept` in a terminal of your own")
        pinned = {path: self._pin(path, sources) for path, sources in taken.items()}
        at, signature = signed or (time.time(), "")
        save_accepted(self.root.state, Accepted(source, at, by, channel, pinned, signature))
        if source is not None:
            with contextlib.suppress(ConfigInvalid):  # only for review: a folder without it works as well
                copies = self.root.state / PACKS_FOLDER
                text = lock_text(config.settings, pinned, self._installed.manifest, copies)
                write_file(self.root.descriptor, LOCK_FILE, text)
        self._reload()

    def _pin(self, path: str, sources: Sources) -> PinnedPack:
        copy = keep_sources(sources, self.root.state / PACKS_FOLDER)
        manifest = load_manifest(copy / MANIFEST_FILE, name=f"{path.rstrip('/')}/{MANIFEST_FILE}")
        return PinnedPack(manifest.id, manifest.version, copy.name)


def _refused(message: str, hint: str) -> ConfigInvalid:
    return ConfigInvalid(message, code="NOT_ACCEPTED", hint=hint)
