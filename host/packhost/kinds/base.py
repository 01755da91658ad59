"""What a tool is to the host, what runs one, and what a handler is given.

A handler is `def handler(context, arguments)`, sync or async: it returns JSON data or raises
`ToolFailed`; its working directory is the workspace's root. Everything it may touch goes through
its `CallContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from packhost.errors import Place
from packhost.kinds.services import HostServices
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, Scope
from packhost.sandbox.level import Enforcement

EntryType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class PackFacts:
    """What a tool needs to know of its pack."""

    id: str
    version: str
    title: str
    digest: str
    """SHA-256 of the manifest and the code that was accepted."""
    folder: Path | None
    """Where the code lies for a pack that is not installed; `None` for an installed one."""
    shipped: bool
    trusted: bool
    config_key: str | None
    layers: tuple[Layer, ...] = ()
    """The narrowing that the workspace's entry for this pack adds."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the registry holds it: immutable, parsed once."""

    id: ToolId
    spec: ToolSpec
    pack: PackFacts
    scopes: tuple[Scope, ...]
    version: str
    """The pack's version and a digest of this tool's definition and code: an approval is bound to it."""
    place: Place | None = None
    path_arguments: tuple[tuple[tuple[str, ...], Literal["read", "write"]], ...] = ()
    """Places in the arguments that carry `x-path`, with the access that each one asks for."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What is known of a path: `size` in bytes, `modified` in seconds since the epoch."""

    path: str
    type: EntryType
    size: int
    modified: float
    mode: int


@dataclass(frozen=True, slots=True)
class Walk:
    """Files found below a folder, and how many were passed over, by reason."""

    files: tuple[FileStat, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)


class Files(Protocol):
    """The workspace's files, each use held to every layer of scopes at the moment of use.

    Paths are relative to the workspace's root and `/`-separated. Every method raises `ScopeDenied`
    for what lies outside the scopes, `NotFound` for what is missing and `ToolFailed` otherwise.
    """

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`."""

    def stat(self, path: str) -> FileStat:
        """What lies at `path`."""

    def list(self, path: str) -> list[FileStat]:
        """The entries of a folder, by name."""

    def walk(self, path: str, *, limit: int = 100_000) -> Walk:
        """Every readable file below a folder, in order, symlinks not followed."""

    def write(self, path: str, data: bytes, *, create_parents: bool = True) -> None:
        """Replace or create a file as one step: readers see the old or the new whole."""

    def replace_if_unchanged(self, path: str, old: bytes, new: bytes) -> None:
        """Replace a file whose content is still `old`; `ToolFailed` when it is not."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder; never over something that exists."""

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; a filled one only with `recursive`."""

    def make_directory(self, path: str) -> None:
        """Make a folder and the parents that it lacks."""


class CallContext(Protocol):
    """What a handler is given: who calls, what it may use, and the way back through the gate."""

    @property
    def tool(self) -> str:
        """The canonical name of the tool that runs."""

    @property
    def call_id(self) -> str:
        """This call's identifier in the record."""

    @property
    def run_id(self) -> str:
        """The run that this call belongs to."""

    @property
    def session_id(self) -> str:
        """The session that the run belongs to."""

    @property
    def principal(self) -> str:
        """Whom the caller acts for."""

    @property
    def client(self) -> str:
        """The calling client's name: a label, never an identity."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The pack's own section of `packhost.yaml`, as it was accepted."""

    @property
    def files(self) -> Files:
        """The workspace's files within this call's scopes."""

    @property
    def host(self) -> HostServices | None:
        """Services of the host; `None` for a pack that is not shipped."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far the call is."""

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Make a nested governed call; returns its value, raises `PackhostError` when it was refused or failed."""

    def secret(self, name: str) -> str:
        """A secret's value; `ScopeDenied` unless the tool declares `secret NAME` and every layer covers it."""


class Kind(Protocol):
    """What runs the tools of one `kind`."""

    @property
    def name(self) -> str:
        """The word in a manifest's `kind`."""

    def check(self, spec: ToolSpec) -> list[str]:
        """What is wrong with a tool's definition, a sentence each; found when the manifest loads."""

    def enforcement(self, tool: Tool) -> Enforcement:
        """How strongly this tool's scopes are enforced when it runs here and now."""

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run one call and return its JSON value; raises `PackhostError`; cancellable."""

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """What a person should see before approving, beyond the arguments; empty when there is nothing."""

    async def close(self) -> None:
        """End everything that still runs."""
