"""The handler of `execute-turn`: check what is asked, start a run, wait for it unless told not to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.api import CallContext, HostServices, InvalidInput, PackhostError, RunView
from packhost_packs.agent_runtime.limits import limits_of
from packhost_packs.agent_runtime.loop import DRIVER
from packhost_packs.agent_runtime.profiles import Chosen, choose
from packhost_packs.agent_runtime.providers.scripted import MAX_SCRIPT_BYTES, check_script, read_script

_UNBUILT = ("stream", "workflow", "runtime_tools", "client_tools", "variables")


async def execute_turn(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run of turns; its result, or where it stands.

    Raises `InvalidInput` for a member that is not built yet, and `PackhostError` with
    `MODEL_NOT_CONFIGURED` when no model is set up.
    """
    for name in _UNBUILT:
        if arguments.get(name):
            raise InvalidInput(
                f"`{name}` is not available in this version", path=f"/{name}", hint="leave it out of the call"
            )
    host = services(context)
    chosen = choose(context.config, arguments.get("model_profile"), arguments.get("agent"))
    background = bool(arguments.get("background"))
    run_id = await host.runs.start(
        DRIVER,
        _spec(context, arguments, chosen),
        context=context,
        session_id=arguments.get("session_id"),
        background=background,
    )
    if background:
        return result_of(await host.runs.get(run_id, context=context))
    return result_of(await host.runs.wait(run_id, context=context))


def services(context: CallContext) -> HostServices:
    """The host's services; raises `PackhostError` when this pack runs without them."""
    if context.host is None:
        raise PackhostError(
            "the host's services are not at hand here",
            code="ENFORCEMENT_UNAVAILABLE",
            hint="call the tool through `packhost serve` or `packhost call`",
        )
    return context.host


def result_of(view: RunView) -> dict[str, Any]:
    """A run as the tool's result; raises the run's own error when it could not begin or broke."""
    result = dict(view.result or {})
    if view.outcome == "error":
        error = result.get("error", {})
        raise PackhostError(
            error.get("message", "the run failed"),
            code=error.get("code", "TOOL_FAILED"),
            hint=error.get("hint", ""),
            run_id=view.id,
            **({"path": error["path"]} if "path" in error else {}),
        )
    going = {"queued": "running", "running": "running", "aborted": "cancelled"}
    outcome = view.outcome if view.status in ("completed", "failed") else going.get(view.status, view.status)
    known: dict[str, Any] = {
        key: result[key] for key in ("turns", "tool_calls", "retries", "error") if key in result
    }
    if view.reason and "error" not in known:
        known["reason"] = view.reason
    return {
        "run_id": view.id,
        "session_id": view.session_id,
        "outcome": outcome,
        "text": result.get("text", ""),
        "content_blocks": result.get("content_blocks", []),
        "requested_tools": result.get("requested_tools", []),
        "usage": result.get("usage"),
        **known,
    }


def _spec(context: CallContext, arguments: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "model_profile": chosen.name,
        "agent": arguments.get("agent"),
        "messages": arguments["messages"],
        "tools": arguments.get("tools"),
        "loop": bool(arguments.get("loop")),
        "limits": limits_of(chosen.agent.get("limits") or {}, arguments.get("limits") or {}).as_json(),
    }
    if chosen.provider == "scripted":
        script = chosen.profile.get("script")
        if isinstance(script, str):
            spec["script"] = read_script(context.files.read(script, limit=MAX_SCRIPT_BYTES + 1))
        else:
            spec["script"] = check_script(script)
    return spec
