"""What a call wants of its client before it can go on, and gets with the call made again.

`obtain` is for what a handler needs at its beginning: where an answer is missing, it raises `InputNeeded` and
the call ends there. The host puts the requests to the client and makes the call again with the answers in
`context.inputs`, so nothing may have happened before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from packhost.errors import PackhostError
from packhost.manifest.schemas import input_fault, schema_fault

METHODS: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""The requests that there are, and what a client declares that takes them."""
MOST: Final = 10
"""Requests at once."""


class InputNeeded(PackhostError):
    """A call cannot go on before its client has answered: `requests` by names of the handler's own."""

    def __init__(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self.requests = {name: dict(request) for name, request in requests.items()}
        super().__init__(
            "the call needs something of its client before it can go on",
            code="INPUT_REQUIRED",
            hint="make it with a client that can be asked for it",
            inputs=self.requests,
        )


class Asking(Protocol):
    """What `obtain` needs of a call's context."""

    @property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The answers that came with the call."""


def obtain(context: Asking, **requests: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The client's answer to each request, `{"method": …, "params": …}` as MCP has them.

    Methods are `elicitation/create`, `sampling/createMessage` and `roots/list`. Raises `InputNeeded` for
    those without an answer that fits.
    """
    answers = context.inputs
    missing = {name: one for name, one in requests.items() if not _fits(one, answers.get(name))}
    if missing:
        raise InputNeeded(missing)
    return {name: answers[name] for name in requests}


def _fits(request: Mapping[str, Any], answer: Mapping[str, Any] | None) -> bool:
    if not isinstance(answer, Mapping):
        return False
    method, params = request.get("method"), request.get("params") or {}
    if method == "sampling/createMessage":
        return "content" in answer
    if method == "roots/list":
        return "roots" in answer
    if answer.get("action") != "accept":
        return answer.get("action") in ("decline", "cancel")
    schema = params.get("requestedSchema")
    if schema is None or schema_fault(schema) is not None:
        return True
    return input_fault(schema, answer.get("content") or {}) is None
