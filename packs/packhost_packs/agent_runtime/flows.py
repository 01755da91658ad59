"""The kind `flow`: a tool that runs a saved or inline workflow and returns what its last step came to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packhost.api import CallContext, InvalidInput, Located, PackhostError, Tool, ToolSpec
from packhost_packs.agent_runtime.approving import joined
from packhost_packs.agent_runtime.children import (
    PACK,
    bounded,
    depth_of,
    ended_well,
    host_of,
    nests,
    parent_of,
    required_by,
    run_child,
    within_of,
)
from packhost_packs.agent_runtime.drivers import WORKFLOW
from packhost_packs.agent_runtime.workflows.plan import read_nodes
from packhost_packs.agent_runtime.workflows.start import workflow_spec
from packhost_packs.agent_runtime.workflows.values import Missing, look_up, result_values

_KEYS = ("flow_id", "flow", "parameter_mapping", "output_mapping", "output_variable", "timeout_ms")
_LONGEST = 24 * 3600 * 1000


class FlowKind:
    """Checks and runs its tools, for `kinds.FlowTools`."""

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `config`, a sentence each; a saved flow is looked for at the call."""
        return list(_problems(spec))

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run the workflow to its end and return its value.

        Raises `PackhostError` when it cannot begin or does not end well.
        """
        config = tool.spec.config
        renamed: Mapping[str, str] = config.get("parameter_mapping") or {}
        asked: dict[str, Any] = {
            "workflow": config["flow_id"] if "flow_id" in config else as_workflow(config["flow"]),
            "input": {renamed.get(name, name): value for name, value in arguments.items()},
        }
        spec = workflow_spec(context, asked, host_of(context).section(PACK))
        if unseen := [renamed.get(name, name) for name in tool.spec.hidden_parameters if name in arguments]:
            spec["unseen_input"] = unseen
        parent = parent_of(context)
        spec["limits"] = bounded(spec["limits"], parent)
        if "timeout_ms" in config:
            spec["limits"]["wall_clock"] = min(spec["limits"]["wall_clock"], config["timeout_ms"] / 1000)
        if require := required_by(context):
            asking(spec, require)
        bound(spec, context, own="flow_id" in config)
        view = await run_child(WORKFLOW, spec, context)
        return value_of(ended_well(view, f"the flow of `{tool.id}`"), config)


def asking(spec: dict[str, Any], require: Sequence[str]) -> None:
    """Have a workflow ask a person before each call that the run which calls it asks for."""
    added = {"require": list(require)}
    spec["approval"] = added
    for node in spec["nodes"]:
        if node["turn"]:
            node["turn"]["approval"] = joined(node["turn"].get("approval"), added)


def bound(spec: dict[str, Any], context: CallContext, *, own: bool) -> None:
    """Hold a workflow to the tools of the run that calls it; one of the workspace's `own` has its own."""
    held: dict[str, Any] = {"depth": depth_of(context), "nesting": own or nests(context)}
    within = None if own else within_of(context)
    if within is not None:
        held["within"] = list(within)
    if not held["depth"] and within is None:
        return
    spec.update(held)
    for node in spec["nodes"]:
        node["turn"].update(held if node["turn"] else {})


def as_workflow(flow: Mapping[str, Any]) -> dict[str, Any]:
    """A flow as a workflow: `steps` come one after the other where they do not say otherwise."""
    if "steps" not in flow:
        return dict(flow)
    nodes: list[dict[str, Any]] = []
    for number, step in enumerate(flow["steps"], 1):
        node = {"id": f"step{number}", **step}
        if nodes and "depends_on" not in node:
            node.update(depends_on=[before["id"] for before in nodes], join="after")
        nodes.append(node)
    return {**{name: value for name, value in flow.items() if name != "steps"}, "nodes": nodes}


def value_of(result: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """What the tool returns: of the last step that ran, or of the one that `output_variable` names."""
    nodes: Mapping[str, Any] = result.get("nodes", {})
    name = config.get("output_variable") or result.get("last")
    node = nodes.get(name) if name is not None else None
    if node is None or node["status"] != "ended":
        raise PackhostError(
            f"no step of the flow wrote `{name}`" if name else "no step of the flow was run",
            code="OUTPUT_INVALID",
            hint="name a step that runs in `output_variable`",
        )
    value = node.get("value", node["text"])
    path = config.get("output_mapping")
    if not path:
        return value
    found = look_up(f"value.{path}", {"value": _data(value)})
    if isinstance(found, Missing):
        raise PackhostError(
            f"the flow's value has no `{path}`", code="OUTPUT_INVALID", hint="correct `output_mapping`"
        )
    return found


def _data(value: Any) -> Any:
    """A text that is JSON as what it says."""
    if not isinstance(value, str):
        return value
    read = result_values("ended", "completed", value)["json"]()
    return value if isinstance(read, Missing) else read


def _problems(spec: ToolSpec) -> Iterator[str]:
    config = spec.config
    for name in config:
        if name not in _KEYS:
            listed = ", ".join(f"`{one}`" for one in _KEYS)
            yield Located(f"`config` of kind `flow` has no `{name}`: there are {listed}", ("config", name))
    if spec.target is not None:
        yield Located("a tool of kind `flow` has no `target`", ("target",))
    if ("flow_id" in config) == ("flow" in config):
        yield Located("`config` has exactly one of `flow_id` and `flow`", ("config",))
    elif "flow_id" in config and not (isinstance(config["flow_id"], str) and config["flow_id"]):
        yield Located("`config.flow_id` is the name of a saved flow", ("config", "flow_id"))
    elif "flow" in config:
        yield from _flow_problems(config["flow"])
    mapping = config.get("parameter_mapping", {})
    if not isinstance(mapping, Mapping) or not all(isinstance(one, str) for one in mapping.values()):
        yield Located(
            "`config.parameter_mapping` maps a parameter to an input's name", ("config", "parameter_mapping")
        )
    else:
        known = spec.input_schema.get("properties") or {}
        for name in mapping:
            if name not in known:
                yield Located(
                    f"`parameter_mapping` names `{name}`, which is no parameter",
                    ("config", "parameter_mapping"),
                )
    for name in ("output_mapping", "output_variable"):
        if name in config and not (isinstance(config[name], str) and config[name]):
            yield Located(f"`config.{name}` is a text", ("config", name))
    timeout = config.get("timeout_ms", 1)
    if isinstance(timeout, bool) or not isinstance(timeout, int) or not 1 <= timeout <= _LONGEST:
        yield Located(
            f"`config.timeout_ms` is a positive integer, at most {_LONGEST}", ("config", "timeout_ms")
        )


def _flow_problems(flow: Any) -> Iterator[str]:
    steps = flow.get("steps") if isinstance(flow, Mapping) else None
    if not isinstance(flow, Mapping) or ("steps" in flow) == ("nodes" in flow):
        yield Located("`config.flow` has `steps`, or `nodes` that say what they wait for", ("config", "flow"))
    elif "steps" in flow and not _are_steps(steps):
        yield Located("`config.flow.steps` is a list of steps, one at least", ("config", "flow", "steps"))
    else:
        try:
            read_nodes(as_workflow(flow), "")
        except InvalidInput as error:
            where = str(error.data.get("path", ""))
            yield Located(f"`config.flow{where.replace('/', '.')}`: {error.message}", ("config", "flow"))


def _are_steps(steps: Any) -> bool:
    return isinstance(steps, Sequence) and bool(steps) and all(isinstance(one, Mapping) for one in steps)
