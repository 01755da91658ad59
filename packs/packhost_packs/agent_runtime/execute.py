"""The handler of `execute-turn`: check what is asked, start a run, wait for it unless told not to."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from packhost.api import CallContext, InvalidInput, PackhostError, RunView
from packhost_packs.agent_runtime.children import host_of
from packhost_packs.agent_runtime.client_tools import admitted, fingerprint
from packhost_packs.agent_runtime.conversation import NAMED
from packhost_packs.agent_runtime.drivers import TURN, WORKFLOW
from packhost_packs.agent_runtime.local_tools import together
from packhost_packs.agent_runtime.requests import turn_spec
from packhost_packs.agent_runtime.workflows.start import workflow_spec

_THE_HOSTS = ("_tenant", "_endUser", "_identity")
RESULTS = ".agent-runtime/results"


async def execute_turn(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run of turns or a workflow; its result, or where it stands.

    Raises `InvalidInput` for a tool of the caller's or a workflow that could not run and for a variable of
    the host's own, `PackhostError` with `MODEL_NOT_CONFIGURED` when no model is set up.
    """
    host = host_of(context)
    variables = _variables(arguments)
    driver = TURN if arguments.get("workflow") is None else WORKFLOW
    if driver == WORKFLOW and NAMED in arguments:
        raise InvalidInput("a workflow ends with no message", path=f"/{NAMED}", hint="leave it out")
    make = functools.partial(_spec if driver == TURN else workflow_spec, context, arguments)
    # to check many tools takes its time, and others are served meanwhile
    spec = await anyio.to_thread.run_sync(make) if brings_tools(arguments) else make()
    if variables:
        spec["variables"] = variables
    if arguments.get("intent") == "mandatory" or any(
        node["turn"].get("intent") == "mandatory" for node in spec.get("nodes", ())
    ):
        spec["intent"] = "mandatory"
    policy = arguments.get("client_tools_policy")
    if arguments.get("client_tools"):
        sent = admitted(arguments["client_tools"], policy, host.described)
        spec["client_tools"] = together(spec.get("client_tools", ()), sent)
    if policy is not None:
        spec["client_tools_policy"] = policy
    background = bool(arguments.get("background"))
    run_id = await host.runs.start(
        driver, spec, context=context, session_id=arguments.get("session_id"), background=background
    )
    if background:
        view = await host.runs.get(run_id, context=context)
    else:
        view = await host.runs.wait(run_id, context=context)
    result = result_of(view)
    if spec.get("client_tools"):
        result["client_tools_fingerprint"] = fingerprint(spec["client_tools"])
    return exported(context, arguments, result)


def brings_tools(arguments: Mapping[str, Any]) -> bool:
    """Whether a request brings tools of its own, itself or with a node."""
    workflow = arguments.get("workflow")
    nodes = workflow.get("nodes") if isinstance(workflow, Mapping) else None
    places = [arguments, *(nodes if isinstance(nodes, list) else ())]
    return any(isinstance(one, Mapping) and one.get("runtime_tools") for one in places)


def _variables(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """What fills hidden parameters in this run, where the workspace leaves them open."""
    variables: Mapping[str, Any] = arguments.get("variables") or {}
    for name in variables:
        if name in _THE_HOSTS or name.startswith("_internal"):
            raise InvalidInput(
                f"the variable `{name[:64]}` is the host's own",
                path=f"/variables/{name}",
                hint="leave it out",
            )
    return variables


def exported(context: CallContext, arguments: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result, written to a file of its own when that is asked for and the run has ended.

    A file that cannot be written takes nothing from the result, which then says why.
    """
    if not arguments.get("export") or result["outcome"] in ("running", "paused", "interrupted"):
        return result
    path = f"{RESULTS}/{result['run_id']}.json"
    text = json.dumps(result, ensure_ascii=False, indent=2)
    try:
        context.files.write(path, text.encode() + b"\n")
    except PackhostError as error:
        return {**result, "export_error": f"`{path}` was not written: {error.message}"}
    return {**result, "exported": path}


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
    going = {"queued": "running", "running": "running"}
    outcome = view.outcome or going.get(view.status, view.status)
    known: dict[str, Any] = {key: result[key] for key in _MORE if key in result}
    if view.reason and "error" not in known:
        known["reason"] = view.reason
    if view.waiting_on:
        known["waiting_on"] = view.waiting_on
    if view.checkpoint is not None:
        known["checkpoint"] = view.checkpoint
    if view.awaits:
        known["awaits"] = [dict(call) for call in view.awaits]
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


_MORE = ("message_id", "turns", "tool_calls", "retries", "nodes", "error")


def _spec(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if not arguments.get("messages"):
        hint = "give the new messages, or a `workflow`"
        raise InvalidInput("`messages` is missing", path="/messages", hint=hint)
    more = {NAMED: arguments[NAMED]} if NAMED in arguments else {}
    return turn_spec(context, arguments, {"stream": bool(arguments.get("stream")), **more})
