"""A small host for tests of the server and the transports: a gate with real waiting and real approvals."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from packhost.errors import PackhostError
from packhost.gate.types import (
    Answer,
    Asker,
    Caller,
    CallRequest,
    Completed,
    Deferred,
    Listing,
    Outcome,
    Prompt,
    Refusal,
    Step,
    Trace,
    Withheld,
)
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.providing import Provision
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId, nearest
from packhost.rules.scopes import parse_scope
from packhost.server.host import Consent, HostStatus

PACK = PackFacts("demo", "1.0.0", "Demo", "0" * 64, None, True, True, None)
ANY = {"type": "object", "properties": {}, "additionalProperties": True}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def make_tool(name: str, permission: str = "read", **spec: Any) -> Tool:
    lines = spec.pop("required_scopes", ())
    full = ToolSpec(
        name=name,
        description=f"the tool {name}",
        kind="python",
        target="demo:handler",
        permission=permission,
        input_schema=spec.pop("input_schema", ANY),
        required_scopes=lines,
        **spec,
    )
    return Tool(ToolId("demo", name), full, PACK, tuple(parse_scope(line) for line in lines), "1.0.0+0")


class FakeGate:
    """Runs the demo tools; what asks is bound to tool and arguments, used once."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.requests: list[CallRequest] = []
        self.ran: list[str] = []
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.release = anyio.Event()
        self.asked = anyio.Event()
        self.approvals: dict[str, dict[str, Any]] = {}
        self.tools = {
            tool.id.tool: tool
            for tool in (
                make_tool("echo", title="Echo"),
                make_tool("add", output_schema=SUM),
                make_tool("hidden", input_schema=_HIDDEN, hidden_parameters=("key",)),
                make_tool("fetch", required_scopes=("network example.org:443",)),
                make_tool("slow"),
                make_tool("steps"),
                make_tool("big"),
                make_tool("refuse", output_schema=SUM),
                make_tool("crash"),
                make_tool("write", "write"),
                make_tool("turn", "write", config={"nested": True}),
                make_tool("form", "write"),
                make_tool("long", config={"task": "required"}),
                make_tool("forms", "write", config={"nested": True}),
            )
        }

    def listed(self, caller: Caller) -> Listing:
        return Listing(tuple(self.tools.values()), (Withheld("demo:gone", "workspace bound", "no overlap"),))

    def explain(self, request: CallRequest) -> Trace:
        return Trace(request.tool, (Step("resolve", True, "found"),), "allow", None, "host")

    async def call(self, request: CallRequest, asker: Asker | None) -> Outcome:
        self.requests.append(request)
        name = request.tool.removeprefix("demo_").removeprefix("demo:")
        run = getattr(self, f"_{name}", None)
        if name not in self.tools or run is None:
            return Refusal(
                "TOOL_NOT_FOUND", f"no tool `{request.tool}`", data={"near": nearest(name, self.tools)}
            )
        outcome: Outcome = await run(request, asker)
        return outcome

    async def _echo(self, request: CallRequest, _: Asker | None) -> Outcome:
        return done(dict(request.arguments))

    async def _add(self, request: CallRequest, _: Asker | None) -> Outcome:
        return done({"sum": sum(request.arguments["numbers"])})

    async def _crash(self, *_: Any) -> Outcome:
        raise RuntimeError("boom")

    async def _refuse(self, *_: Any) -> Outcome:
        return Refusal("SCOPE_DENIED", "`x` lies outside", hint="ask for `src/x`", layer="workspace bound")

    async def _big(self, request: CallRequest, _: Asker | None) -> Outcome:
        if request.progress and request.arguments.get("progress"):
            await request.progress(1, 2, "half")
        text = "x" * request.arguments["size"]
        return done({"data": text} if request.arguments.get("object") else text)

    async def _slow(self, *_: Any) -> Outcome:
        self.started.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return done("released")

    async def _steps(self, request: CallRequest, _: Asker | None) -> Outcome:
        for step in range(1, 4):
            assert request.progress is not None
            await request.progress(step, 3, f"step {step}")
        return done("stepped")

    async def _write(self, request: CallRequest, asker: Asker | None) -> Outcome:
        return await self._approved(request, asker, "write", nested=False) or done("written")

    async def _turn(self, request: CallRequest, asker: Asker | None) -> Outcome:
        said = []
        try:
            for number in range(request.arguments.get("questions", 2)):
                refusal = await self._approved(request, asker, f"step{number}", nested=True)
                said.append(
                    "yes" if refusal is None else refusal.code if isinstance(refusal, Refusal) else "?"
                )
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return done({"said": said})

    async def _form(self, request: CallRequest, asker: Asker | None, nested: bool = False) -> Outcome:
        expires = time.time() + self.host.approval_timeout
        prompt = Prompt("qn_1", "demo:form", "Which seat?", expires, nested, FORM)
        assert asker is not None
        answer = await asker.ask(prompt)
        if answer.verdict == "deferred":
            return Deferred(prompt)
        return done({"verdict": answer.verdict, "reason": answer.reason, "content": answer.content})

    async def _forms(self, request: CallRequest, asker: Asker | None) -> Outcome:
        return await self._form(request, asker, nested=True)

    async def _approved(
        self, request: CallRequest, asker: Asker | None, what: str, *, nested: bool
    ) -> Outcome | None:
        key = (what, repr(sorted(request.arguments.items())))
        record = next(
            (
                r
                for r in self.approvals.values()
                if r["key"] == key and r["status"] in ("pending", "approved")
            ),
            None,
        )
        if record is None:
            id = f"apr_{len(self.approvals) + 1}"
            record = self.approvals[id] = {
                "id": id, "key": key, "status": "pending", "decided": anyio.Event(), "by": "",
                "operator": bool(request.arguments.get("operator")),
            }  # fmt: skip
        if record["status"] == "pending":
            answer = await self._ask(asker, record, what, nested)
            if answer.verdict == "deferred":
                return Deferred(self._prompt(record, what, nested))
            if answer.verdict != "unanswered":
                self.decide(record["id"], answer.verdict, answer.by)
        if record["status"] == "approved":
            record["status"] = "used"
            self.ran.append(what)
            return None
        code: Any = "APPROVAL_DENIED" if record["status"] == "denied" else "APPROVAL_REQUIRED"
        return Refusal(
            code,
            f"{what} waits for a person" if code == "APPROVAL_REQUIRED" else f"{what} was denied",
            hint=f"packhost approvals approve {record['id']}",
            approval_id=record["id"],
        )

    async def _ask(self, asker: Asker | None, record: dict[str, Any], what: str, nested: bool) -> Answer:
        if asker is None:
            return Answer("unanswered")
        answer = Answer("unanswered")
        async with anyio.create_task_group() as tasks:

            async def elsewhere() -> None:
                await record["decided"].wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(elsewhere)
            self.asked.set()
            answer = await asker.ask(self._prompt(record, what, nested))
            tasks.cancel_scope.cancel()
        return answer

    def _prompt(self, record: dict[str, Any], what: str, nested: bool) -> Prompt:
        expires = time.time() + self.host.approval_timeout
        operator = record["operator"]
        return Prompt(record["id"], f"demo:{what}", f"Run {what}?", expires, nested, operator=operator)

    def decide(self, id: str, verdict: str, by: str) -> None:
        record = self.approvals[id]
        record["status"] = "approved" if verdict == "approve" else "denied"
        record["by"] = by
        record["decided"].set()


FORM = {
    "type": "object",
    "properties": {"seat": {"type": "string", "enum": ["aisle", "no"]}, "bags": {"type": "integer"}},
    "required": ["seat"],
}
_HIDDEN = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "shown": {"type": "string"}},
    "required": ["key", "shown"],
}


def done(value: Any) -> Completed:
    return Completed(value, json.dumps(value), "call_1", "run_1", "host")


class FakeHost:
    """What a server needs of its composition root."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.tasks = tasks
        self.version = "1.2.3"
        self.principal = "tester"
        self.generation = 1
        self.provisions: dict[str, Provision] = {}
        self.state_keys = [b"k" * 32]
        self.afar = None
        self.board: Any = None
        self.console: str | None = None
        self.hold = 0.2
        self.approval_timeout = 60.0
        self.gate = FakeGate(self)
        self.change: Consent | None = None
        self.accepted: list[tuple[str, str, str]] = []
        self.changed: Callable[[], Awaitable[None]] | None = None

    def redact(self, text: str) -> str:
        return text

    def consent(self) -> Consent | None:
        return self.change

    async def accept(self, digest: str, *, by: str, channel: str) -> None:
        if self.change is None or self.change.digest != digest:
            raise PackhostError("the change is another one by now", hint="look at it again")
        self.accepted.append((digest, by, channel))
        self.change = None

    def status(self) -> HostStatus:
        return HostStatus("/workspace", "the defaults", "sqlite", 0, ("a problem",))

    def run_of(self, approval_id: str) -> str | None:
        return "run_9"
