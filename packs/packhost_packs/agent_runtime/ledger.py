"""What a run has spent and what it is in the middle of: the state from which it is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.api import RunResult
from packhost_packs.agent_runtime.batch import Pending
from packhost_packs.agent_runtime.conversation import Message
from packhost_packs.agent_runtime.limits import Limits, Spent
from packhost_packs.agent_runtime.providers.base import Reply, Usage
from packhost_packs.agent_runtime.strict_json import dumps

SAME_FAILURES = 3
"""So often the same call may fail; it is not made a further time."""
SAME_REFUSALS = 2
"""So often it may then be asked for all the same, before the run ends."""


@dataclass(frozen=True, slots=True)
class Share:
    """Budgets that several parts of one run have together; `elsewhere` gives what the other parts used."""

    limits: Limits
    elsewhere: Callable[[], Spent]


class Ledger:
    """A typed view of a run's `state`, a JSON object that is written down at each safe point.

    `worked` gives the seconds at work since the run was started or resumed.
    """

    def __init__(
        self, state: dict[str, Any], limits: Limits, worked: Callable[[], float], share: Share | None = None
    ) -> None:
        for name, value in _FRESH.items():
            state.setdefault(name, value.copy() if isinstance(value, list | dict) else value)
        self._state = state
        self._limits = limits
        self._worked = worked
        self._share = share
        self._before = float(state["seconds"])

    @property
    def opened(self) -> bool:
        """Whether the request's messages are in the history."""
        return bool(self._state["opened"])

    def open(self, tools: list[str]) -> None:
        """Note that they are, and the tools on offer, which stay the same for the whole run."""
        self._state["opened"] = True
        self._state["tools"] = tools

    def offer(self, tools: Sequence[str]) -> None:
        """Note tools that came later."""
        self._state["tools"] += [name for name in tools if name not in self._state["tools"]]

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that were on offer when the run began, or came later."""
        return frozenset(self._state["tools"])

    @property
    def found(self) -> list[str]:
        """Names of the tools that a search has brought in, in this order."""
        return list(self._state["found"])

    def load(self, names: Sequence[str]) -> None:
        """Bring tools in; what is there already stays where it is."""
        self._state["found"] += [name for name in names if name not in self._state["found"]]

    @property
    def spawned(self) -> int:
        """Subagents that the model started by itself."""
        return int(self._state["spawned"])

    def count_spawn(self) -> None:
        """Count a further one."""
        self._state["spawned"] = self.spawned + 1

    def charge(self, input_tokens: int, output_tokens: int) -> None:
        """Count what a run below this one used."""
        self._state["input_tokens"] += input_tokens
        self._state["output_tokens"] += output_tokens

    @property
    def turns(self) -> int:
        """Replies so far."""
        return int(self._state["turns"])

    @property
    def tool_calls(self) -> int:
        """Calls admitted so far."""
        return int(self._state["tool_calls"])

    @property
    def retries(self) -> int:
        """Requests so far that repeated one which the provider did not take."""
        return int(self._state["retries"])

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self._state["input_tokens"], self._state["output_tokens"])

    @property
    def text(self) -> str:
        """The last reply's text."""
        return str(self._state["text"])

    @property
    def seconds_left(self) -> float:
        """Seconds that the run may still work."""
        return min(
            limits.wall_clock - self._before - self._worked() - spent.seconds
            for limits, spent in self._budgets()
        )

    @property
    def tokens_left(self) -> int:
        """Tokens that the run may still use."""
        return min(limits.max_tokens - self.usage.total - spent.tokens for limits, spent in self._budgets())

    @property
    def retries_left(self) -> int:
        """Requests that may still be repeated."""
        return min(limits.max_retries - self.retries - spent.retries for limits, spent in self._budgets())

    def _budgets(self) -> list[tuple[Limits, Spent]]:
        own = (self._limits, _NOTHING)
        return [own] if self._share is None else [own, (self._share.limits, self._share.elsewhere())]

    def clock(self) -> None:
        """Bring the seconds at work up to date, before the state is written down."""
        self._state["seconds"] = round(self._before + self._worked(), 3)

    def spent(self) -> tuple[str, str] | None:
        """The budget that is used up, as an issue and a sentence; `None` while a turn fits."""
        for limits, elsewhere in self._budgets():
            if self.turns + elsewhere.turns >= limits.max_turns:
                return "BUDGET_TURNS", f"the run has had its {limits.max_turns} turns"
            if self.usage.total + elsewhere.tokens >= limits.max_tokens:
                return "BUDGET_TOKENS", f"the run has used its {limits.max_tokens} tokens"
            if self._before + self._worked() + elsewhere.seconds >= limits.wall_clock:
                return "BUDGET_WALL_CLOCK", f"the run has worked its {limits.wall_clock:g} seconds"
        for failed in self._state["failures"].values():
            if failed["times"] >= SAME_FAILURES + SAME_REFUSALS:
                message = f"the same call of `{failed['name']}` was asked for again and again though it fails"
                return "BUDGET_RETRIES", message
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

    def count_retry(self) -> None:
        """Count a request that is about to be repeated."""
        self._state["retries"] = self.retries + 1

    def admits(self, calls: int) -> bool:
        """Whether a whole batch fits; never a part of one."""
        return all(
            self.tool_calls + calls + elsewhere.tool_calls <= limits.max_tool_calls
            for limits, elsewhere in self._budgets()
        )

    def failed_before(self, call: Mapping[str, Any]) -> int:
        """How often this tool has failed with this input since it last did well with it."""
        failed = self._state["failures"].get(_same(call))
        return 0 if failed is None else int(failed["times"])

    def note(self, call: Mapping[str, Any], *, ok: bool) -> None:
        """Note how a call ended."""
        key = _same(call)
        if ok:
            self._state["failures"].pop(key, None)
        else:
            failed = self._state["failures"].setdefault(key, {"name": call["name"], "times": 0})
            failed["times"] += 1

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
        self._state["pending"] = {"message": message, "results": {}, "running": []}
        return Pending(self._state["pending"])

    def end_batch(self) -> None:
        """Forget the batch: it goes into the history in the same step."""
        self._state["pending"] = None


def spent_in(state: Mapping[str, Any]) -> Spent:
    """What the part of a run used whose state this is; nothing where it has not begun."""
    if not state:
        return _NOTHING
    return Spent(
        turns=state["turns"],
        tool_calls=state["tool_calls"],
        seconds=state["seconds"],
        tokens=state["input_tokens"] + state["output_tokens"],
        retries=state["retries"],
    )


def _same(call: Mapping[str, Any]) -> str:
    return hashlib.sha256(dumps([call["name"], call["input"]])).hexdigest()[:24]


_NOTHING = Spent()
_FRESH: Mapping[str, Any] = {
    "opened": False,
    "tools": [],
    "turns": 0,
    "tool_calls": 0,
    "retries": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "seconds": 0.0,
    "text": "",
    "failures": {},
    "found": [],
    "spawned": 0,
    "pending": None,
    "ended": None,
}
