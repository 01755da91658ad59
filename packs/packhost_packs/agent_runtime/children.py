"""Runs that a tool starts for the run that called it: budgets out of its own, and their cost in its total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.api import CallContext, HostServices, OfferedTool, PackhostError, RunView, ToolFailed
from packhost_packs.agent_runtime.ledger import Ledger

PACK = "agent-runtime"
DEEPEST = 5
"""So deep subagents may start subagents."""
_CODES: Mapping[str, Any] = {"limit_exceeded": "LIMIT_EXCEEDED", "cancelled": "CANCELLED"}


@dataclass(frozen=True, slots=True)
class Parent:
    """What a run of turns tells the kinds of this pack, with each call that it makes."""

    tools: Sequence[OfferedTool]
    """The tools that it resolved to."""
    definitions: Sequence[Mapping[str, Any]]
    """Those that it brought itself."""
    require: Sequence[str] | None
    """Patterns of the tools that it asks a person for; `None` where it says nothing of it."""
    depth: int
    nesting: bool
    """Whether it may start subagents."""
    model_profile: str
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Step:
    """What a workflow tells the kinds of this pack, with each call of its steps."""

    require: Sequence[str] | None
    """Patterns of the tools that it asks a person for; `None` where it says nothing of it."""
    within: Sequence[str] | None = None
    """Canonical names of the tools that it may use; `None`: all that there are."""
    depth: int = 0
    nesting: bool = True


def within_of(context: CallContext) -> Sequence[str] | None:
    """Canonical names of the tools of the run that made this call; `None` where nothing bounds them."""
    calling = context.calling
    if isinstance(calling, Parent):
        return [tool.canonical for tool in calling.tools]
    return calling.within if isinstance(calling, Step) else None


def depth_of(context: CallContext) -> int:
    """How deep the run that made this call is below others as a subagent."""
    return context.calling.depth if isinstance(context.calling, Parent | Step) else 0


def nests(context: CallContext) -> bool:
    """Whether the run that made this call may start subagents."""
    return context.calling.nesting if isinstance(context.calling, Parent | Step) else True


def required_by(context: CallContext) -> Sequence[str]:
    """Patterns of the tools for which the run that made this call asks a person."""
    return (context.calling.require if isinstance(context.calling, Parent | Step) else None) or ()


def parent_of(context: CallContext) -> Parent | None:
    """The run of turns that made this call; `None` for any other caller."""
    return context.calling if isinstance(context.calling, Parent) else None


def host_of(context: CallContext) -> HostServices:
    """The host's services; raises `PackhostError` where there are none."""
    if context.host is None:
        raise PackhostError(
            "the host's services are not at hand here",
            code="ENFORCEMENT_UNAVAILABLE",
            hint="call the tool through `packhost serve` or `packhost call`",
        )
    return context.host


def bounded(limits: Mapping[str, Any], parent: Parent | None) -> dict[str, Any]:
    """Limits that also keep to what the calling run has left.

    Raises `PackhostError` with `LIMIT_EXCEEDED` when it has nothing left.
    """
    if parent is None:
        return dict(limits)
    tokens, seconds = parent.ledger.tokens_left, parent.ledger.seconds_left
    if tokens < 1 or seconds <= 0:
        raise PackhostError(
            "the run has nothing left for a run below it", code="LIMIT_EXCEEDED", hint="finish without it"
        )
    return {
        **limits,
        "max_tokens": min(limits["max_tokens"], tokens),
        "wall_clock": min(limits["wall_clock"], seconds),
    }


async def run_child(driver: str, spec: Mapping[str, Any], context: CallContext) -> RunView:
    """Start a run in a session of its own, named by the call, wait for its end, and count what it used.

    The call's own time stands still: the run has its limits. Cancelling this ends the run.
    """
    host, parent = host_of(context), parent_of(context)
    with context.untimed():
        run_id = await host.runs.start(driver, spec, context=context, session_id=context.call_id)
        view = await host.runs.wait(run_id, context=context)
    usage = (view.result or {}).get("usage")
    if parent is not None and usage:
        parent.ledger.charge(usage["input_tokens"], usage["output_tokens"])
    return view


async def start_detached(driver: str, spec: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    """Start a run that outlives the call; its `run_id` and `session_id`."""
    run_id = await host_of(context).runs.start(
        driver, spec, context=context, session_id=context.call_id, background=True
    )
    return {"run_id": run_id, "session_id": context.call_id, "outcome": "running"}


def ended_well(view: RunView, what: str) -> Mapping[str, Any]:
    """A run's result; raises `PackhostError` that says how it ended where that was not well."""
    result: Mapping[str, Any] = view.result or {}
    if view.outcome == "completed":
        return result
    outcome = view.outcome or view.status
    error = result.get("error") or {}
    said = error.get("message") or result.get("text") or view.reason or ""
    message = f"{what} ended as `{outcome}`" + (f": {' '.join(str(said).split())[:500]}" if said else "")
    if view.outcome is None:
        raise ToolFailed(
            message, hint=f"its run `{view.id}` can go on with `resume_workflow`", run_id=view.id
        )
    raise PackhostError(
        message,
        code=_CODES.get(outcome, error.get("code", "TOOL_FAILED")),
        hint=f"its run is `{view.id}`",
        run_id=view.id,
    )
