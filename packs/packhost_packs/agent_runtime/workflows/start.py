"""What a workflow is started with: its nodes checked, each with the request of its own run of turns."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from packhost.api import CallContext, InvalidInput, NotFound, PackhostError
from packhost_packs.agent_runtime.limits import Limits, seconds
from packhost_packs.agent_runtime.requests import check_size, turn_spec
from packhost_packs.agent_runtime.workflows.plan import read_limits, read_nodes

_ALONE = (
    *("model_profile", "agent", "tools", "loop"),
    *("runtime_tools", "approval", "tool_search", "subagent_config"),
)
"""Members of a call that each node has for itself."""


def workflow_spec(
    context: CallContext, asked: Mapping[str, Any], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The request of a workflow's run: a saved one by name, or the one in the call.

    `config` is this pack's section where the call is of another pack's tool; `input` in place of
    `messages` is what `{{input}}` stands for.

    Raises `NotFound` for an unknown name and `InvalidInput`, with the path of what is wrong.
    """
    for name in _ALONE:
        if asked.get(name) is not None:
            hint = f"give `{name}` to the nodes that need it"
            raise InvalidInput(f"`{name}` does not go with `workflow`", path=f"/{name}", hint=hint)
    workflow, at = asked["workflow"], "/workflow"
    if isinstance(workflow, str):
        workflow, at = _saved(context.config if config is None else config, workflow), f"/flows/{workflow}"
    nodes = []
    read = read_nodes(workflow, at)
    check_size([one for node in read for one in node.turn.get("runtime_tools") or ()])
    for index, node in enumerate(read):
        if node.step is not None:
            nodes.append(node.as_json())
            continue
        try:
            turn = turn_spec(context, node.turn, {"stream": bool(asked.get("stream"))}, config)
        except PackhostError as error:
            error.data.setdefault("path", f"{at}/nodes/{index}")
            raise
        nodes.append(replace(node, turn=turn).as_json())
    saved = read_limits(workflow.get("limits"), f"{at}/limits")
    limits = _together(
        [node["turn"]["limits"] for node in nodes if node["turn"]], saved, asked.get("limits") or {}
    )
    given = asked["input"] if "input" in asked else _text_of(asked.get("messages") or ())
    return {"nodes": nodes, "limits": limits, "input": given}


def _saved(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    flows: Mapping[str, Any] = config.get("flows") or {}
    if name in flows:
        saved: Mapping[str, Any] = flows[name]
        return saved
    near = difflib.get_close_matches(name, list(flows), n=3, cutoff=0.5)
    listed = ", ".join(f"`{one}`" for one in near or flows) or "none is saved in packhost.yaml"
    raise NotFound(f"there is no saved workflow `{name[:64]}`", hint=f"known workflows: {listed}")


def _together(
    nodes: Sequence[Mapping[str, Any]], saved: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What all nodes may spend together: what is said, else as much as each may for itself."""
    limits: dict[str, Any] = {}
    for name, default in Limits().as_json().items():
        given = [one[name] for one in (saved, asked) if name in one]
        if name == "wall_clock":
            given = [seconds(one) for one in given]
        limits[name] = min(given) if given else sum(node[name] for node in nodes) or default
    return limits


def _text_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """What `{{input}}` stands for: the texts of the call's messages, one under the other."""
    texts: list[str] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts.extend(block["text"] for block in blocks if block["type"] == "text")
    return "\n".join(texts)
