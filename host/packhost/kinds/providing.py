"""What a pack has beside its tools: resources and prompts, and how they run through the gate.

A `Provider` comes from a trusted pack by the hook `packhost_provider`, or from a kind that is `Providing`,
such as that of upstream servers. Its values have the shape that MCP gives them. A reading, a prompt and a
completion are each a governed call: of `<pack>:resources.read`, `<pack>:prompts.get`,
`<pack>:resources.complete` or `<pack>:prompts.complete`, of kind `resource` or `prompt`, which a workspace's
rules match like any tool's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

from packhost.errors import NotFound
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.context import CallContext
from packhost.manifest.model import PackManifest, ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Scope
from packhost.sandbox.level import Enforcement

Part = Literal["resources", "prompts"]
KINDS: Final[dict[Part, str]] = {"resources": "resource", "prompts": "prompt"}
"""The kind, for a workspace's rules, of the calls that each part is had by."""
READ: Final = "resources.read"
GET: Final = "prompts.get"
COMPLETE: Final[dict[Part, str]] = {"resources": "resources.complete", "prompts": "prompts.complete"}


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that clients are told of: a list of a pack's, or one resource by its `uri`."""

    what: Literal["tools", "resources", "prompts", "resource"]
    uri: str = ""


Announce = Callable[[Changed], None]
"""Tells the host's clients of a change; called in the host's event loop, and never waits."""


class Provider:
    """One pack's resources and prompts; override what there is of them.

    Lists are asked for often, by every client: keep them ready, since a list that takes long is left out.
    """

    serves: frozenset[Part] = frozenset(("resources", "prompts"))
    """Which of the two there may be any of."""
    untrusted: bool = False
    """Whether they come from somewhere that nobody here vouches for: texts are then marked so."""
    timeout: float = 60.0
    """Seconds that one reading, prompt or completion may take."""

    @property
    def enforcement(self) -> Enforcement:
        """How strongly what answers is held to its scopes."""
        return "host"

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What each of its calls needs, and every layer has to cover."""
        return ()

    async def resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources: `uri`, `name` and what else MCP gives one."""
        return ()

    async def templates(self) -> Sequence[Mapping[str, Any]]:
        """The templates of resources: `uriTemplate`, `name` and so on."""
        return ()

    def owns(self, uri: str) -> bool:
        """Whether a URI is this pack's though it neither lists it nor has a template for it."""
        return False

    async def read(self, uri: str, context: CallContext) -> Mapping[str, Any]:
        """A resource: `{"contents": […]}`; raises `NotFound` for one that there is not."""
        raise NotFound(f"there is no resource `{uri}`", hint="list the resources to see what there is")

    async def subscribe(self, uri: str) -> None:
        """Somebody wants to hear when a resource changes; asked for once, however many there are."""

    async def unsubscribe(self, uri: str) -> None:
        """Nobody does any more."""

    async def prompts(self) -> Sequence[Mapping[str, Any]]:
        """The prompts: `name`, `description`, `arguments` and so on."""
        return ()

    async def prompt(
        self, name: str, arguments: Mapping[str, str], context: CallContext
    ) -> Mapping[str, Any]:
        """A prompt, filled in: `{"messages": […]}`; raises `NotFound` for one that there is not."""
        raise NotFound(f"there is no prompt `{name}`", hint="list the prompts to see what there is")

    async def complete(
        self,
        reference: Mapping[str, Any],
        argument: Mapping[str, str],
        given: Mapping[str, str],
        context: CallContext,
    ) -> Mapping[str, Any]:
        """How an argument may go on: `{"values": […]}`, at most 100.

        `reference` is the prompt or template, `argument` has its `name` and the `value` so far, `given` are
        the other arguments.
        """
        return {"values": []}


@runtime_checkable
class Providing(Protocol):
    """A kind whose packs may have resources and prompts."""

    def provider(self, pack: PackFacts, manifest: PackManifest, announce: Announce) -> Provider | None:
        """A pack's, or `None`; asked at every change of the configuration, and must not start anything."""


@dataclass(frozen=True, slots=True)
class Provision:
    """A provider with its pack, and the tools that its calls are governed as."""

    pack: PackFacts
    provider: Provider
    tools: Mapping[str, Tool]
    """By `READ`, `GET` and those of `COMPLETE`."""

    def offers(self, part: Part) -> bool:
        """Whether there may be any."""
        return part in self.provider.serves


def provision(pack: PackFacts, provider: Provider) -> Provision:
    """Make a provider's calls governable."""
    verbs: tuple[tuple[str, Part], ...] = ((READ, "resources"), (GET, "prompts"))
    verbs += tuple((name, part) for part, name in COMPLETE.items())
    return Provision(pack, provider, {verb: _tool(pack, provider, verb, part) for verb, part in verbs})


def _tool(pack: PackFacts, provider: Provider, verb: str, part: Part) -> Tool:
    spec = ToolSpec.model_construct(
        name=verb,
        title="",
        description=_SAID[verb],
        kind=KINDS[part],
        permission="read",
        input_schema=_TAKES[verb],
        idempotent=True,
        timeout=provider.timeout,
    )
    version = f"{pack.version}+{hashlib.sha256(f'{pack.digest} {verb}'.encode()).hexdigest()[:12]}"
    return Tool(ToolId(pack.id, verb), spec, pack, provider.scopes, version)


class ProvidedKind:
    """The kind `resource` or `prompt`: its calls are answered by their pack's provider."""

    def __init__(self, part: Part, provisions: Mapping[str, Provision]) -> None:
        self._part = part
        self._provisions = provisions

    @property
    def name(self) -> str:
        """The word that rules match."""
        return KINDS[self._part]

    def check(self, spec: ToolSpec, folder: Any = None) -> list[str]:
        """No manifest has tools of it."""
        return [f"`{self.name}` is no kind of tools"]

    def enforcement(self, tool: Tool) -> Enforcement:
        """What the provider says of itself."""
        return self._provisions[tool.id.pack].provider.enforcement

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Have the provider answer."""
        provider = self._provisions[tool.id.pack].provider
        if tool.id.tool == READ:
            return dict(await provider.read(arguments["uri"], context))
        if tool.id.tool == GET:
            return dict(await provider.prompt(arguments["name"], arguments["arguments"], context))
        given = arguments["given"]
        return dict(await provider.complete(arguments["ref"], arguments["argument"], given, context))

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """The arguments say it all."""
        return ""

    async def close(self) -> None:
        """Nothing is open."""


_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_SAID: Final = {
    READ: "Read a resource.",
    GET: "Get a prompt, filled in.",
    COMPLETE["resources"]: "Complete an argument of a template of resources.",
    COMPLETE["prompts"]: "Complete an argument of a prompt.",
}


def _takes(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_COMPLETES: Final = _takes(ref={"type": "object"}, argument=_TEXTS, given=_TEXTS)
_TAKES: Final = {
    READ: _takes(uri={"type": "string"}),
    GET: _takes(name={"type": "string"}, arguments=_TEXTS),
    COMPLETE["resources"]: _COMPLETES,
    COMPLETE["prompts"]: _COMPLETES,
}
