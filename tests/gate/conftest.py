"""A gate on a real store and a real folder; only the tools are made for the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.gate.catalog import build_catalog
from packhost.gate.configuration import Autonomy, Configuration, Limits, Terms
from packhost.gate.gate import Gate
from packhost.gate.types import Answer, Caller, CallRequest, Outcome, Prompt
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.context import CallContext
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.packs.registry import Registry
from packhost.rules.policy import NamedApproval, Policy, Rule
from packhost.rules.scopes import Layer, parse_scope
from packhost.store.ops import approvals, events
from packhost.store.rows import ApprovalRow
from packhost.store.sqlite import SqliteStore

Handler = Callable[[CallContext, dict[str, Any]], Awaitable[Any]]


class TestKind:
    """Runs handlers that a test gives it."""

    __test__ = False
    name = "test"

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.previews: dict[str, str] = {}
        self.level = "host"

    def check(self, spec: ToolSpec, folder: object = None) -> list[str]:
        return []

    def enforcement(self, tool: Tool) -> Any:
        return self.level

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        return await self.handlers[tool.id.tool](context, arguments)

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        return self.previews.get(tool.id.tool, "")

    async def close(self) -> None:
        """Nothing is left running."""


@dataclass
class Person:
    """A person at a dialog: answers each question as told and remembers what was shown."""

    answers: list[Answer]
    shown: list[Prompt] = field(default_factory=list)
    asked: anyio.Event = field(default_factory=anyio.Event)
    patience: anyio.Event | None = None
    """When set, answers come only after it."""

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        self.asked.set()
        if self.patience is not None:
            await self.patience.wait()
        return self.answers.pop(0)


APPROVE = Answer("approve", by="person", channel="client")
DENY = Answer("deny", by="person", channel="client", reason="not now")
NOBODY = Answer("unanswered", channel="client")


class Bench:
    """A workspace under test: tools, rules and levels can be changed between calls."""

    def __init__(self, root: Path, store: SqliteStore, descriptor: int) -> None:
        self.root = root
        self.store = store
        self.kind = TestKind()
        self.tools: dict[str, Tool] = {}
        self.named: dict[str, NamedApproval] = {}
        self.bound = ["path read **", "path write src/**", "tool *"]
        self.rules: list[Rule] = []
        self.autonomy = Autonomy("guarded", "autonomous")
        self.terms = Terms(timeout=600.0, unattended="hold")
        self.limits = Limits(1 << 20, 1 << 20)
        self.require: Any = "partial"
        self.variables: dict[str, Any] = {}
        self.secret_values: dict[str, str] = {}
        self.ran: list[str] = []
        self._generation: Configuration | None = None
        self.gate = Gate(
            store=store,
            key=b"k" * 32,
            root_descriptor=descriptor,
            owner="host_test",
            configuration=self.configuration,
            services=lambda: None,  # type: ignore[arg-type, return-value]
        )

    def approval(self, name: str, **more: Any) -> None:
        self.named[f"t:{name}"] = NamedApproval(
            name=f"t:{name}", title=name, assurance=more.get("assurance", "client"), grantable=True
        )

    def tool(self, name: str, handler: Handler | None = None, *, shipped: bool = True, **spec: Any) -> None:
        async def echo(context: CallContext, arguments: dict[str, Any]) -> Any:
            self.ran.append(name)
            return {"echo": arguments}

        spec.setdefault("permission", "read")
        spec.setdefault("input_schema", {"type": "object"})
        model = ToolSpec(name=name, description=name, kind="test", **spec)
        paths = tuple(
            ((key,), value["x-path"])
            for key, value in model.input_schema.get("properties", {}).items()
            if "x-path" in value
        )
        self.kind.handlers[name] = handler or echo
        self.tools[f"t:{name}"] = Tool(
            id=ToolId("t", name),
            spec=model,
            pack=PackFacts("t", "1", "T", "d", None, shipped, False, None),
            scopes=tuple(parse_scope(line) for line in model.required_scopes),
            version="1-abc",
            path_arguments=paths,
        )
        self.reload()

    def reload(self) -> None:
        self._generation = None

    def configuration(self) -> Configuration:
        if self._generation is None:
            registry = Registry(tools=self.tools, by_wire={}, packs={}, problems=(), approvals=self.named)
            bounds = (Layer("workspace bound", tuple(parse_scope(line) for line in self.bound)),)
            self._generation = Configuration(
                catalog=build_catalog(registry, {"test": self.kind}, bounds, 1, self.variables),
                policies=(Policy(tuple(self.rules)),),
                limits=self.limits,
                autonomy=self.autonomy,
                terms=self.terms,
                require=self.require,
                variables=self.variables,
                sections={},
                resolve_secret=self.secret_values.__getitem__,
                redact=self._redact,
            )
        return self._generation

    def _redact(self, text: str) -> str:
        for value in self.secret_values.values():
            text = text.replace(value, "[REDACTED]")
        return text

    @property
    def caller(self) -> Caller:
        return Caller("ann", "test-client", "s-1")

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, asker: Any = None, **caller: Any
    ) -> Outcome:
        request = CallRequest(f"t_{name}", arguments or {}, replace(self.caller, **caller))
        return await self.gate.call(request, asker)

    def pending(self) -> list[ApprovalRow]:
        return list(self.store.read(approvals.listing, "pending", 100))

    async def events(self) -> list[str]:
        await self.store.flush()
        return [record.type for record in self.store.read(events.page, 0, None, 1000)]


class Refusing(PackhostError):
    """What a test's handler raises on purpose."""

    code = "TOOL_FAILED"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    import os

    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("one")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    store = SqliteStore(tmp_path / "store.db", "w")
    try:
        yield Bench(root, store, descriptor)
    finally:
        await store.close()
        os.close(descriptor)
