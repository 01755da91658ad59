"""The handlers of the six tools that steer a run, a session's autonomy and a pending question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import CallContext, HostServices, InvalidInput, RunView, SessionView
from packhost_packs.agent_runtime.children import host_of
from packhost_packs.agent_runtime.client_tools import MEMBER, fingerprint, of_run, refreshed
from packhost_packs.agent_runtime.conversation import NAMED
from packhost_packs.agent_runtime.drivers import TURN, WORKFLOW
from packhost_packs.agent_runtime.execute import exported, result_of
from packhost_packs.agent_runtime.limits import seconds

DRIVERS = frozenset({TURN, WORKFLOW})
ENDED = frozenset({"completed", "failed", "aborted"})


async def pause_turn(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a run to pause at its next safe point."""
    runs = host_of(context).runs
    return _standing(await runs.pause(arguments["run_id"], arguments.get("reason", ""), context=context))


async def abort_turn(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """End a run now."""
    runs = host_of(context).runs
    return _standing(await runs.abort(arguments["run_id"], arguments.get("reason", ""), context=context))


async def resume_workflow(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let a run go on and wait for it, unless it runs in the background; one that has ended: its result.

    Outputs of calls are kept, and the run goes on once it waits for none; until then it is still paused.
    With a set of client tools this one takes the place of the run's; one that is named by its fingerprint
    alone has to be the run's. Raises `Conflict` where it is not.
    """
    host = host_of(context)
    runs = host.runs
    outputs, checkpoint = arguments.get("tool_outputs"), arguments.get("checkpoint")
    view = await runs.get(arguments["run_id"], context=context)
    sent, claimed = arguments.get("client_tools"), arguments.get("client_tools_fingerprint")
    amend = Refreshing(sent, claimed, host) if sent is not None or claimed is not None else None
    changes = amend if NAMED not in arguments else Naming(arguments[NAMED], amend)
    bound = bool(outputs) or checkpoint is not None or changes is not None
    if bound or view.status not in ENDED or view.kind not in DRIVERS:
        view = await runs.resume(
            view.id, context=context, outputs=outputs, checkpoint=checkpoint, amend=changes
        )
        if not view.background:
            view = await runs.wait(view.id, context=context)
    result = result_of(view)
    if amend is not None:
        result["client_tools_fingerprint"] = amend.fingerprint
    return exported(context, arguments, result)


class Naming:
    """Names the message that a run ends with, beside whatever else is changed of its state."""

    def __init__(self, name: str, also: Refreshing | None) -> None:
        self._name = name
        self._also = also

    def __call__(self, spec: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What changes of the run's state."""
        if "nodes" in spec:
            raise InvalidInput(
                "a workflow ends with no message", path=f"/{NAMED}", hint=f"resume it without `{NAMED}`"
            )
        return {NAMED: self._name, **(self._also(spec, state) if self._also is not None else {})}


class Refreshing:
    """Puts client tools that were sent anew in the place of a run's, by the policy that the run has."""

    def __init__(self, sent: Sequence[Any] | None, claimed: str | None, host: HostServices) -> None:
        self._sent = sent
        self._claimed = claimed
        self._host = host
        self.fingerprint = ""

    def __call__(self, spec: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What changes of the run's state."""
        if "nodes" in spec and self._sent is not None:
            raise InvalidInput(
                "the nodes of a workflow keep the client tools that it began with",
                path="/client_tools",
                hint="resume it without",
            )
        now = of_run(spec, state)
        policy = spec.get("client_tools_policy")
        found = refreshed(now, self._sent, self._claimed, policy, self._host.described)
        self.fingerprint = fingerprint(now if found is None else found)
        return {} if found is None else {MEMBER: found}


async def elevate_autonomy(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give a session more autonomy."""
    expires_in = arguments.get("expires_in")
    view = await host_of(context).sessions.raise_level(
        arguments.get("session_id"),
        arguments["level"],
        arguments["reason"],
        None if expires_in is None else seconds(expires_in),
        context=context,
    )
    return _session(view)


async def lower_autonomy(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Take autonomy back from a session at once."""
    view = await host_of(context).sessions.lower_level(
        arguments.get("session_id"), arguments["level"], arguments.get("reason", ""), context=context
    )
    return _session(view)


async def approve_inflight(context: CallContext, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Put a pending call into the caller's own dialog; the person there decides, whatever is proposed."""
    answer = await host_of(context).approvals.put_to_person(
        arguments["approval_id"], arguments["decision"], arguments.get("reason", ""), context=context
    )
    return dict(answer)


def _standing(view: RunView) -> dict[str, Any]:
    told = {"waiting_on": view.waiting_on, "reason": view.reason}
    standing = {"run_id": view.id, "session_id": view.session_id, "status": view.status}
    return {**standing, **{name: value for name, value in told.items() if value}}


def _session(view: SessionView) -> dict[str, Any]:
    return {"session_id": view.id, "level": view.level, "expires_at": view.expires_at}
