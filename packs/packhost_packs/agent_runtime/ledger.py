"""What a run has spent and what it is in the middle of: the state from which it is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from packhost.api import RunResult
from packhost_packs.agent_runtime.conversation import Message, result_block
from packhost_packs.agent_runtime.limits import Limits
from packhost_packs.agent_runtime.providers.base import Reply, Usage


class Ledger:
    """A typed view of a run's `state`, a JSON object that is written down at each safe point.

    `worked` gives the seconds at work since the run was started or resumed.
    """

    def __init__(self, state: dict[str, Any], limits: Limits, worked: Callable[[], float]) -> None:
        for name, value in _FRESH.items():
            state.setdefault(name, value.copy() if isinstance(value, list) else value)
        self._state = state
        self._limits = limits
        self._worked = worked
        self._before = float(state["seconds"])

    @property
    def opened(self) -> bool:
        """Whether the request's messages are in the history."""
        return bool(self._state["opened"])

    def open(self, tools: list[str]) -> None:
        """Note that they are, and the tools on offer, which stay the same for the whole run."""
        self._state["opened"] = True
        self._state["tools"] = tools

    @property
    def tools(self) -> frozenset[str]:
        """Wire names of the tools that were on offer when the run began."""
        return frozenset(self._state["tools"])

    @property
    def turns(self) -> int:
        """Replies so far."""
        return int(self._state["turns"])

    @property
    def tool_calls(self) -> int:
        """Calls admitted so far."""
        return int(self._state["tool_calls"])

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self._state["input_tokens"], self._state["output_tokens"])

    @property
    def ids(self) -> list[str]:
        """Ids of every call that the run was asked for."""
        ids: list[str] = self._state["ids"]
        return ids

    @property
    def text(self) -> str:
        """The last reply's text."""
        return str(self._state["text"])

    @property
    def seconds_left(self) -> float:
        """Seconds that the run may still work."""
        return self._limits.wall_clock - self._before - self._worked()

    @property
    def tokens_left(self) -> int:
        """Tokens that the run may still use."""
        return self._limits.max_tokens - self.usage.total

    def clock(self) -> None:
        """Bring the seconds at work up to date, before the state is written down."""
        self._state["seconds"] = round(self._before + self._worked(), 3)

    def spent(self) -> tuple[str, str] | None:
        """The budget that is used up, as an issue and a sentence; `None` while a turn fits."""
        limits = self._limits
        if self.turns >= limits.max_turns:
            return "BUDGET_TURNS", f"the run has had its {limits.max_turns} turns"
        if self.tokens_left < 1:
            return "BUDGET_TOKENS", f"the run has used its {limits.max_tokens} tokens"
        if self.seconds_left <= 0:
            return "BUDGET_WALL_CLOCK", f"the run has worked its {limits.wall_clock:g} seconds"
        return None

    def count(self, reply: Reply) -> None:
        """Count a reply that holds the contract."""
        usage = self.usage.plus(reply.usage)
        self._state.update(
            turns=self.turns + 1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            text=reply.text,
        )
        self.ids.extend(call["id"] for call in reply.requested if isinstance(call["id"], str))

    def admits(self, calls: int) -> bool:
        """Whether a whole batch fits; never a part of one."""
        return self.tool_calls + calls <= self._limits.max_tool_calls

    @property
    def ended(self) -> RunResult | None:
        """The run's end, once it was written down together with the messages that go with it."""
        raw = self._state["ended"]
        return None if raw is None else RunResult(raw["outcome"], raw["result"], failed=raw["failed"])

    def end(self, result: RunResult) -> RunResult:
        """Note the run's end."""
        self._state["ended"] = {"outcome": result.outcome, "result": result.result, "failed": result.failed}
        return result

    @property
    def pending(self) -> Pending | None:
        """The batch that is being worked through."""
        raw = self._state["pending"]
        return None if raw is None else Pending(raw)

    def begin_batch(self, message: Message, admitted: int) -> Pending:
        """Take up a batch, of which all calls are admitted or none."""
        self._state["tool_calls"] = self.tool_calls + admitted
        self._state["pending"] = {"message": message, "results": {}, "running": None}
        return Pending(self._state["pending"])

    def end_batch(self) -> None:
        """Forget the batch: it goes into the history in the same step."""
        self._state["pending"] = None


_FRESH: Mapping[str, Any] = {
    "opened": False,
    "tools": [],
    "turns": 0,
    "tool_calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "seconds": 0.0,
    "ids": [],
    "text": "",
    "pending": None,
    "ended": None,
}


class Pending:
    """A batch of calls: the message that asked, and a result for each call that has one."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw

    @property
    def message(self) -> Message:
        """The assistant message that asks for the calls."""
        message: Message = self._raw["message"]
        return message

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls, in the order in which they were asked for."""
        return [block for block in self.message["content"] if block["type"] == "tool_call"]

    @property
    def running(self) -> str | None:
        """The call that was about to start, or has started, when the state was written."""
        running: str | None = self._raw["running"]
        return running

    def start(self, identity: str) -> None:
        """Note which call comes next; written down before it starts."""
        self._raw["running"] = identity

    def has(self, identity: str) -> bool:
        """Whether a call has its result."""
        return identity in self._raw["results"]

    def finish(self, identity: str, text: str, *, is_error: bool) -> None:
        """Keep a call's result; the first one stands."""
        self._raw["results"].setdefault(identity, {"text": text, "is_error": is_error})
        self._raw["running"] = None

    def fill(self, text: str) -> None:
        """Give every call without a result the same one: an error."""
        for call in self.calls:
            self.finish(call["id"], text, is_error=True)

    def messages(self) -> list[Message]:
        """Both messages for the history: what was asked, and a result for every call, in order."""
        results = self._raw["results"]
        blocks = [
            result_block(call["id"], results[call["id"]]["text"], is_error=results[call["id"]]["is_error"])
            for call in self.calls
        ]
        return [self.message, {"role": "user", "content": blocks}]
