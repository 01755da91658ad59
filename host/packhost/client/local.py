"""Runs whose model calls tools of the calling program: started, followed and answered until they end.

Each call is made once: what came of it is kept until the host has taken it, through broken lines and other
resumptions of the same run, and is sent again rather than made again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal

from packhost.client.aio import AsyncClient
from packhost.client.exchange import ApiError, ConnectionLost
from packhost.client.sync import Client
from packhost.client.values import Envelope

WAIT = 60.0
"""Seconds that one request waits for the run to end or pause."""
TRIES = 5
"""How often in a row the host may be out of reach before that is raised."""
_OVER = frozenset({"CONTINUATION_IN_PROGRESS", "RESUME_STATE_CHANGED"})
"""Codes of a resumption that another one was faster than: the run is looked at again."""


@dataclass(frozen=True, slots=True)
class LocalTool:
    """A tool that this program runs: `run` gets the arguments and returns JSON, or raises.

    `untrusted` is for output that others can write into: the model is given it between marks.
    """

    name: str
    description: str
    parameters_schema: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Any | Awaitable[Any]]
    untrusted: bool = False

    def definition(self) -> dict[str, Any]:
        """The tool as a request names it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters_schema": dict(self.parameters_schema),
            "origin": "sdk",
            "untrusted_content_hint": self.untrusted,
        }


class _Making:
    """The calls of one run that this program makes, and what came of them."""

    def __init__(self, tools: Sequence[LocalTool], scope: str) -> None:
        if scope != "turn":
            raise ValueError("`scope` is `turn`: the tools belong to this run alone")
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) != len(tools):
            raise ValueError("two tools have one name")
        self.outputs: dict[str, dict[str, Any]] = {}
        self.unsure = False
        """Whether the run has to be looked at before anything is sent to it."""
        self._lost = 0

    def body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request with the tools."""
        more = [*request.get("client_tools", ()), *(tool.definition() for tool in self.tools.values())]
        return {**request, "loop": True, "client_tools": more}

    def asked(self, now: Envelope) -> list[Mapping[str, Any]]:
        """The calls that the run waits for; empty where it waits for nothing of this program's."""
        if now.status != "paused" or now.paused is None or now.paused.type != "local_action":
            return []
        return [call for call in now.paused.awaits if call["tool_name"] in self.tools]

    def answered(self, calls: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """What came of these calls."""
        return {call["tool_call_id"]: self.outputs[call["tool_call_id"]] for call in calls}

    def keep(self, call: Mapping[str, Any], value: Any) -> None:
        """Keep what a call returned, as the JSON that is sent."""
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            self.fail(call, TypeError(f"`{call['tool_name']}` returned something that is not JSON"))
        else:
            self.outputs[call["tool_call_id"]] = {"result": value}

    def fail(self, call: Mapping[str, Any], error: Exception) -> None:
        """Keep that a call failed, and why."""
        said = str(error) or type(error).__name__
        self.outputs[call["tool_call_id"]] = {"result": said, "is_error": True}

    def over(self, error: ApiError) -> None:
        """Raise the refusal unless another resumption was faster."""
        if error.code not in _OVER:
            raise error
        self.unsure = True

    def lost(self, error: ConnectionLost) -> None:
        """Raise when the host has been out of reach too often."""
        self._lost += 1
        if self._lost >= TRIES:
            raise error
        self.unsure = True

    def reached(self) -> None:
        """The host answered."""
        self._lost, self.unsure = 0, False


def run_with_local_tools(
    client: Client,
    request: Mapping[str, Any],
    tools: Sequence[LocalTool],
    *,
    scope: Literal["turn"] = "turn",
) -> Envelope:
    """Start a run with these tools beside the host's own and make its calls of them, until it ends.

    `request` are the members of `Client.start`. A run that pauses for anything else, such as a person's
    approval, comes back as it stands: `finish_with_local_tools` goes on with it. A tool that raises has
    failed, and the model is told why. Raises `ApiError` and `ConnectionLost`; the run then goes on without
    this program.
    """
    making = _Making(tools, scope)
    now = client.start(**making.body(request), wait=WAIT)
    return _finish(client, now, making)


def finish_with_local_tools(client: Client, now: Envelope, tools: Sequence[LocalTool]) -> Envelope:
    """Go on with such a run from where it stands."""
    return _finish(client, now, _Making(tools, "turn"))


def _finish(client: Client, now: Envelope, making: _Making) -> Envelope:
    while not now.ended:
        calls = making.asked(now)
        if now.status != "running" and not calls:
            return now
        for call in calls:
            if call["tool_call_id"] not in making.outputs:
                _make(making, call)
        try:
            if calls and not making.unsure:
                now = client.resume(now.run_id, tool_outputs=making.answered(calls), wait=WAIT)
            else:
                now = client.result(now.run_id, wait=WAIT)
            making.reached()
        except ApiError as error:
            making.over(error)
        except ConnectionLost as error:
            making.lost(error)
    return now


def _make(making: _Making, call: Mapping[str, Any]) -> None:
    try:
        made = making.tools[call["tool_name"]].run(dict(call["parameters"]))
        if isawaitable(made):
            raise TypeError("an async tool needs `run_with_local_tools_async`")
        making.keep(call, made)
    except Exception as error:  # a tool may raise anything; the model is told of it
        making.fail(call, error)


async def run_with_local_tools_async(
    client: AsyncClient,
    request: Mapping[str, Any],
    tools: Sequence[LocalTool],
    *,
    scope: Literal["turn"] = "turn",
) -> Envelope:
    """As `run_with_local_tools`; tools may be async."""
    making = _Making(tools, scope)
    now = await client.start(**making.body(request), wait=WAIT)
    return await _finish_async(client, now, making)


async def finish_with_local_tools_async(
    client: AsyncClient, now: Envelope, tools: Sequence[LocalTool]
) -> Envelope:
    """As `finish_with_local_tools`."""
    return await _finish_async(client, now, _Making(tools, "turn"))


async def _finish_async(client: AsyncClient, now: Envelope, making: _Making) -> Envelope:
    while not now.ended:
        calls = making.asked(now)
        if now.status != "running" and not calls:
            return now
        for call in calls:
            if call["tool_call_id"] not in making.outputs:
                await _make_async(making, call)
        try:
            if calls and not making.unsure:
                now = await client.resume(now.run_id, tool_outputs=making.answered(calls), wait=WAIT)
            else:
                now = await client.result(now.run_id, wait=WAIT)
            making.reached()
        except ApiError as error:
            making.over(error)
        except ConnectionLost as error:
            making.lost(error)
    return now


async def _make_async(making: _Making, call: Mapping[str, Any]) -> None:
    try:
        made = making.tools[call["tool_name"]].run(dict(call["parameters"]))
        making.keep(call, await made if isawaitable(made) else made)
    except Exception as error:  # a tool may raise anything; the model is told of it
        making.fail(call, error)
