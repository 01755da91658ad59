"""The calls of one reply: the message that asked for them, and a result for each that has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packhost_packs.agent_runtime.conversation import Message, result_block


class Pending:
    """A typed view of a batch that is being worked through, a part of the run's state."""

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
    def open(self) -> list[dict[str, Any]]:
        """The calls without a result, in order."""
        return [call for call in self.calls if call["id"] not in self._raw["results"]]

    @property
    def running(self) -> tuple[str, ...]:
        """The calls that were about to start, or have started, when the state was written."""
        return tuple(self._raw["running"])

    def start(self, ids: Sequence[str]) -> None:
        """Note which calls come next; written down before they start."""
        self._raw["running"] = list(ids)

    def finish(self, identity: str, text: str, *, is_error: bool, unanswered: bool = False) -> None:
        """Keep a call's result; the first one stands. `unanswered`: nothing ever came of it."""
        result = {"text": text, "is_error": is_error, **({"unanswered": True} if unanswered else {})}
        self._raw["results"].setdefault(identity, result)
        self._raw["running"] = [one for one in self._raw["running"] if one != identity]

    def fill(self, text: str, *, unanswered: bool = False) -> None:
        """Give every call without a result the same one: an error."""
        for call in self.open:
            self.finish(call["id"], text, is_error=True, unanswered=unanswered)

    def unanswered(self, identity: str) -> bool:
        """Whether the run ended before anything came of a call."""
        return bool(self._raw["results"].get(identity, {}).get("unanswered"))

    def messages(self) -> list[Message]:
        """Both messages for the history: what was asked, and a result for every call, in order."""
        results = self._raw["results"]
        blocks = [
            result_block(call["id"], results[call["id"]]["text"], is_error=results[call["id"]]["is_error"])
            for call in self.calls
        ]
        return [self.message, {"role": "user", "content": blocks}]
