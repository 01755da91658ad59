"""A run that lives in memory: what a driver is given, without a host."""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from packhost.kinds.context import OfferedTool, RunResult, RunStopped, ToolOutcome
from packhost_packs.agent_runtime.drivers import TurnDriver
from packhost_packs.agent_runtime.limits import Limits

Answer = Callable[[Mapping[str, Any]], Awaitable[ToolOutcome]]


class Killed(BaseException):
    """The process ends here: nothing after it happens."""


class MemoryRun:
    """Keeps state as it was written down, so that a run can be killed anywhere and resumed."""

    run_id = "run_1"
    session_id = "s-1"
    waited = 0.0

    def __init__(self, script: Sequence[Any], *, loop: bool = True, limits: Limits | None = None) -> None:
        self.spec: dict[str, Any] = {
            "model_profile": "demo",
            "agent": None,
            "messages": [{"role": "user", "content": "begin"}],
            "tools": None,
            "loop": loop,
            "limits": (limits or Limits()).as_json(),
            "script": list(script),
        }
        self.config: dict[str, Any] = {"models": {"demo": {"provider": "scripted"}}}
        self.state: dict[str, Any] = {}
        self.saved = "{}"
        self.messages: list[Any] = []
        self.answers: dict[str, Answer] = {}
        self.idempotent: set[str] = set()
        self.reading: set[str] = set()
        self.ran: list[str] = []
        self.records: dict[str, ToolOutcome] = {}
        self.events: list[tuple[str, Any]] = []
        self.slept: list[float] = []
        self.stop: RunStopped | None = None
        self.aborting = False
        self.kill_after: int | None = None

    def resumed(self) -> MemoryRun:
        """The same run in the next process."""
        again = copy.copy(self)
        again.state, again.stop, again.kill_after = json.loads(self.saved), None, None
        return again

    def offered(self, patterns: Sequence[str] | None) -> tuple[OfferedTool, ...]:
        return tuple(
            OfferedTool(
                f"lab_{name}",
                f"lab:{name}",
                name,
                {"type": "object"},
                idempotent=name in self.idempotent,
                read_only=name in self.reading,
            )
            for name in self.answers
            if patterns is None or f"lab:{name}" in patterns
        )

    def _step(self) -> None:
        if self.kill_after is not None:
            if self.kill_after == 0:
                raise Killed
            self.kill_after -= 1

    async def checkpoint(self, *, lazily: bool = False) -> None:
        self._step()
        self.saved = json.dumps(self.state)
        self._step()
        if self.stop is not None:
            raise self.stop

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.checkpoint()

    async def branch(self, name: str, spec: Mapping[str, Any]) -> Any:
        raise AssertionError("a run of turns has no branches")

    def define(self, definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
        return tuple(
            OfferedTool(one["name"], f"inline:{one['name']}", one["description"], one["parameters_schema"])
            for one in definitions
        )

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, tool_use_id: str, **more: Any
    ) -> ToolOutcome:
        self._step()
        tool = name.removeprefix("lab_")
        self.ran.append(tool_use_id)
        lost = "CANCELLED" if tool in self.idempotent else "EFFECTS_UNKNOWN"
        self.records[tool_use_id] = ToolOutcome(False, lost, code=lost)
        self._step()
        outcome = await self.answers[tool](arguments)
        self.records[tool_use_id] = outcome
        self._step()
        return outcome

    async def recorded(self, tool_use_id: str) -> ToolOutcome | None:
        return self.records.get(tool_use_id)

    async def history(self) -> list[Any]:
        return copy.deepcopy(self.messages)

    async def append(self, messages: Sequence[Any]) -> None:
        self._step()
        self.messages.extend(copy.deepcopy(list(messages)))
        self.saved = json.dumps(self.state)
        self._step()

    async def emit(self, type: str, data: Mapping[str, Any]) -> None:
        self.events.append((type, dict(data)))

    async def report_progress(self, message: str) -> None:
        assert message

    def connect(self, base_url: str, *, secret: str | None, header: str, scheme: str = "") -> Any:
        raise AssertionError("a script needs no connection")

    def answers_with(self, name: str, *outcomes: ToolOutcome, idempotent: bool = False) -> None:
        """Offer a tool that gives these outcomes in turn, the last one for good."""
        left = list(outcomes)

        async def answer(arguments: Mapping[str, Any]) -> ToolOutcome:
            return left.pop(0) if len(left) > 1 else left[0]

        self.answers[name] = answer
        if idempotent:
            self.idempotent.add(name)

    async def drive(self) -> RunResult:
        return await TurnDriver().drive(self)

    def results(self) -> list[tuple[str, bool, str]]:
        """Id, error flag and first word of every tool result in the history, in order."""
        return [
            (block["tool_use_id"], block["is_error"], block["content"].partition(":")[0])
            for message in self.messages
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def pairing_holds(self) -> bool:
        """Whether each message that asks is followed by one that begins with exactly its results."""
        for index, message in enumerate(self.messages):
            asked = [block["id"] for block in message["content"] if block["type"] == "tool_call"]
            if asked:
                after = self.messages[index + 1]["content"] if index + 1 < len(self.messages) else []
                if [block.get("tool_use_id") for block in after] != asked:
                    return False
        return True


@pytest.fixture
def memory_run() -> Callable[..., MemoryRun]:
    """Makes a run that lives in memory."""
    return MemoryRun


@pytest.fixture
def killed() -> type[Killed]:
    """What a run that lives in memory raises where its process is ended."""
    return Killed
