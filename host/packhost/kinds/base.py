"""What a tool is to the host, and what runs one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from packhost.errors import Place
from packhost.kinds.context import CallContext
from packhost.manifest.elicit import form_of
from packhost.manifest.model import ToolSpec
from packhost.manifest.upstream import UpstreamSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, Scope
from packhost.sandbox.level import Enforcement


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
    upstream: UpstreamSpec | None = None
    """The server that its tools of kind `mcp` go to."""


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
    filled: frozenset[str] | None = None
    """Which hidden parameters the workspace fills; `None`: all of them."""
    alias: str = ""
    """The name that the workspace gives it towards clients; empty where it has its own."""

    @property
    def wire(self) -> str:
        """Its name towards MCP clients."""
        return self.alias or self.id.wire

    @property
    def unseen(self) -> frozenset[str]:
        """The parameters that no agent sees: hidden ones, and those that a person gives."""
        form = form_of(self.spec)
        return self.hidden if form is None else self.hidden | form.names

    @property
    def hidden(self) -> frozenset[str]:
        """The parameters that the host fills; what is left of the hidden ones is the agent's to give."""
        return frozenset(self.spec.hidden_parameters) if self.filled is None else self.filled


class Located(str):
    """A sentence about a tool's definition, with the place that it speaks of.

    `path` leads there from the tool; `line` and `column`, from 1, are those within a text of several lines.
    """

    path: tuple[str | int, ...]
    line: int
    column: int

    def __new__(
        cls, message: str, path: tuple[str | int, ...] = (), line: int = 0, column: int = 1
    ) -> Located:
        """The sentence `message`."""
        said = super().__new__(cls, message)
        said.path, said.line, said.column = path, line, column
        return said


class Kind(Protocol):
    """What runs the tools of one `kind`."""

    @property
    def name(self) -> str:
        """The word in a manifest's `kind`."""

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's definition, a sentence each; found when the manifest loads.

        A sentence that is `Located` is reported at its place, any other at the tool's. `folder` is where
        the code of a pack by path lies; nothing of it is run.
        """

    def enforcement(self, tool: Tool) -> Enforcement:
        """How strongly this tool's scopes are enforced when it runs here and now."""

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run one call and return its JSON value; raises `PackhostError`; cancellable."""

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """What a person should see before approving, beyond the arguments; empty when there is nothing."""

    async def close(self) -> None:
        """End everything that still runs."""


@runtime_checkable
class Withholding(Protocol):
    """A kind that may take a tool off the list while the host runs."""

    def withheld(self, tool: Tool) -> str:
        """Why a tool is not on offer just now; empty where it is."""


@runtime_checkable
class Describing(Protocol):
    """A kind that can say in a line what its tools do outside."""

    def describe(self, spec: ToolSpec) -> str:
        """What a tool does where, with secrets by name; for `explain` and reference pages."""
