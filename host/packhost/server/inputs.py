"""What calls want of their client: put to it as its era has it, and the call made again with the answers."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter, ValidationError

from packhost.gate.display import label, quoted, shorten
from packhost.gate.eliciting import LONGEST, fault_of
from packhost.gate.types import Refusal
from packhost.kinds.eliciting import Elicitation
from packhost.kinds.inputs import METHODS, MOST
from packhost.server.asking import KEY
from packhost.server.callers import is_modern
from packhost.server.host import ServerHost

_log = logging.getLogger(__name__)
ROUNDS: Final = 8
"""How often a client is asked in one call."""
CODE: Final = "INPUT_REQUIRED"
_MARK: Final = "inputs:"
_RESULTS: Final[dict[str, Any]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}

Context = ServerRequestContext[Any, Any]
Answers = dict[str, dict[str, Any]]


class Carrying(Protocol):
    """Parameters of a request that may be made again with answers."""

    input_responses: Any
    request_state: str | None

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        """A copy with other members."""


Params = TypeVar("Params", bound=Carrying)
Result = TypeVar("Result")


@functools.cache
def _request() -> TypeAdapter[Any]:
    return TypeAdapter(types.InputRequest)


def inputs_of(params: Any) -> Answers:
    """The answers that a request brings along, but the one to the host's own question."""
    found = getattr(params, "input_responses", None) or {}
    return {name: _plain(one) for name, one in found.items() if name != KEY}


def keyed(key: str | None, inputs: Answers) -> str | None:
    """A call's own key: with other answers it is another call."""
    return key if key is None or not inputs else f"{key}+{','.join(sorted(inputs))}"


class Inputs:
    """Serves requests whose calls may want something of the client."""

    def __init__(self, host: ServerHost) -> None:
        self._host = host

    async def serve(
        self,
        ctx: Context,
        params: Params,
        tool: str,
        make: Callable[[Context, Params], Awaitable[Result]],
        wanted: Callable[[Result], Refusal | None],
        refuse: Callable[[Refusal], Result],
    ) -> Result | types.InputRequiredResult:
        """Make the call of a tool, and again for as long as the client answers what it wants.

        `wanted` is the refusal that says so, of a result; `refuse` makes a result of one.
        """
        number, inputs, params = _opened(params)
        while True:
            result = await make(ctx, params)
            refusal = wanted(result)
            if refusal is None:
                return result
            requests = refusal.data.get("inputs")
            number += 1
            try:
                ready = self._ready(ctx, requests if isinstance(requests, Mapping) else {}, tool)
            except (ValueError, ValidationError) as error:
                return refuse(_bad(str(error).splitlines()[0]))
            if number > ROUNDS:
                return refuse(Refusal("LIMIT_EXCEEDED", f"it asked its client {ROUNDS} times", ""))
            if is_modern(ctx):
                state = f"{_MARK}{json.dumps([number, inputs, params.request_state])}"
                return types.InputRequiredResult(input_requests=ready, request_state=state)
            answers = await self._ask(ctx, ready)
            if answers is None:
                return refuse(Refusal(CODE, refusal.message, "the client did not answer"))
            inputs = {**inputs, **answers}
            params = params.model_copy(update={"input_responses": inputs})

    def _ready(self, ctx: Context, requests: Mapping[str, Any], tool: str) -> dict[str, types.InputRequest]:
        """The requests as they go to the client: those that it takes, without secrets.

        Raises `MCPError` where it takes none of them, `ValueError` for one that cannot be put.
        """
        declared = ctx.session.client_capabilities
        taken: dict[str, types.InputRequest] = {}
        missing: dict[str, dict[str, Any]] = {}
        for name, request in list(requests.items())[:MOST]:
            capability = METHODS.get(str(request.get("method")))
            if capability is None or name == KEY:
                raise ValueError(f"`{name}` is no request that a client takes")
            if declared is None or getattr(declared, capability) is None:
                missing[capability] = {}
                continue
            ready = _request().validate_json(self._host.redact(json.dumps(request)))
            if (fault := _fault(request)) is not None:
                raise ValueError(fault)
            taken[name] = _framed(ready, tool)
        if not taken:
            if not missing:
                raise ValueError("it asked for nothing")
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"this call needs a client that declares {', '.join(missing)}",
                {"requiredCapabilities": missing},
            )
        return taken

    async def _ask(self, ctx: Context, requests: Mapping[str, types.InputRequest]) -> Answers | None:
        """Ask a client of a session one after the other; `None` when it fails or does not answer."""
        found: Answers = {}
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        with anyio.move_on_after(self._host.approval_timeout):
            for name, request in requests.items():
                model = _RESULTS[request.method]
                try:
                    answer = await ctx.session.send_request(request, model, metadata=related)
                except (MCPError, ValidationError) as error:
                    _log.warning("the client did not answer `%s`: %s", request.method, error)
                    return None
                found[name] = _plain(answer)
            return found
        return None


def refusal_in(result: Any) -> Refusal | None:
    """The refusal in a tool's result that says that the call wants something of its client."""
    meta = getattr(result, "meta", None) or {}
    said = meta.get("packhost/refusal")
    if not isinstance(said, Mapping) or said.get("code") != CODE or "inputs" not in said:
        return None
    return Refusal(CODE, str(said.get("message", "")), data={"inputs": said["inputs"]})


def _opened(params: Params) -> tuple[int, Answers, Params]:
    """How often the client was asked, all that it answered so far, and the request with that."""
    number, inputs, state = 0, inputs_of(params), params.request_state
    if state is None or not state.startswith(_MARK):
        return number, inputs, params
    number, before, inner = json.loads(state.removeprefix(_MARK))
    own = {name: one for name, one in (params.input_responses or {}).items() if name == KEY}
    inputs = {**before, **inputs}
    return (
        number,
        inputs,
        params.model_copy(update={"request_state": inner, "input_responses": {**own, **inputs}}),
    )


def _fault(request: Mapping[str, Any]) -> str | None:
    if request["method"] != "elicitation/create":
        return None
    params = request.get("params") or {}
    wanted = Elicitation(str(params.get("message", "")), params.get("requestedSchema"), params.get("url"))
    return fault_of(wanted)


def _framed(request: Any, tool: str) -> Any:
    """A question with whose words they are: nobody takes them for the host's."""
    if not isinstance(request, types.ElicitRequest):
        return request
    said = "\n".join(quoted(shorten(request.params.message, LONGEST)))
    text = f"{label(tool)} asks for your input, in its own words; it approves nothing:\n{said}"
    params = request.params.model_copy(update={"message": text})
    return request.model_copy(update={"params": params})


def _bad(said: str) -> Refusal:
    return Refusal(
        "TOOL_FAILED", f"the tool asks its client for what cannot be put: {said}", "tell the pack's author"
    )


def _plain(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Mapping):
        return dict(answer)
    found: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found
