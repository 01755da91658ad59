"""The kind `subagent`: a tool that hands a task to a child agent and returns its final answer alone.

The child has a conversation of its own and never more tools than the run that calls it: what `allowed_tools`
names and that run was given. Its calls pass the same gate, in a run of its own; its cost is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import (
    CallContext,
    InvalidInput,
    Located,
    OfferedTool,
    PackhostError,
    RunView,
    Tool,
    ToolSpec,
)
from packhost_packs.agent_runtime.approving import joined
from packhost_packs.agent_runtime.children import (
    DEEPEST,
    PACK,
    Parent,
    bounded,
    depth_of,
    ended_well,
    host_of,
    parent_of,
    required_by,
    run_child,
    start_detached,
    within_of,
)
from packhost_packs.agent_runtime.drivers import TURN
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.requests import turn_spec
from packhost_packs.agent_runtime.spawning import SPAWN, named, spawning_of

FORMATS = ("text", "json", "last_message")
_KEYS = (
    *("agent_id", "agent", "allowed_tools", "max_turns", "timeout_ms", "output_format"),
    *("allow_nesting", "detached"),
)
_AGENT = ("name", "model", "system", "tools", "limits", "approval")
_LONGEST = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Task:
    """One call of a subagent, whoever asks for it."""

    message: str
    agent_id: str | None = None
    inline: Mapping[str, Any] = field(default_factory=dict)
    allowed: Sequence[str] | None = None
    """Patterns; `None`: all that its caller has."""
    max_turns: int | None = None
    timeout_ms: int | None = None
    output_format: str = "text"
    nesting: bool = False
    detached: bool = False
    spawning: Mapping[str, Any] | None = None
    """Of a task that a model chose by itself: what subagents it may start."""

    @property
    def agent_name(self) -> str:
        """What the child is called."""
        return self.agent_id or str(self.inline.get("name") or "inline agent")


class SubagentKind:
    """Checks and runs its tools, for `kinds.SubagentTools`."""

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `config`, a sentence each."""
        return list(_problems(spec))

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run the child to its end and return its answer; of a detached one its `run_id`.

        Raises `PackhostError` when it cannot begin or does not end well.
        """
        parent, config = parent_of(context), tool.spec.config
        spawn = config.get("spawn")
        unseen = tool.spec.hidden_parameters  # what the host fills is no model's to read
        shown = {name: value for name, value in arguments.items() if name not in unseen}
        task = _task(config, shown) if spawn is None else _spawned(spawn, arguments, parent)
        spec = _spec(tool, task, context, parent)
        if task.detached:
            return await start_detached(TURN, spec, context)
        view = await run_child(TURN, spec, context)
        return answer(view, task)


def answer(view: RunView, task: Task) -> Any:
    """The child's final answer in the form that was asked for."""
    result = ended_well(view, f"the subagent `{task.agent_name}`")
    text = str(result.get("text", ""))
    if task.output_format == "last_message":
        return {"role": "assistant", "content": result.get("content_blocks", [])}
    if task.output_format == "text":
        return text
    try:
        return strict_json.loads(text.encode("utf-8", "surrogatepass"), "the answer")
    except TurnFault as fault:
        raise PackhostError(
            f"the subagent `{task.agent_name}` was to answer with JSON: {fault.message}",
            code="OUTPUT_INVALID",
            hint="say in the task what JSON it is to answer with, and nothing else",
        ) from None


def _task(config: Mapping[str, Any], arguments: Mapping[str, Any]) -> Task:
    return Task(
        message=_message(arguments),
        agent_id=config.get("agent_id"),
        inline=config.get("agent") or {},
        allowed=config.get("allowed_tools"),
        max_turns=config.get("max_turns"),
        timeout_ms=config.get("timeout_ms"),
        output_format=config.get("output_format", "text"),
        nesting=config.get("allow_nesting", False),
        detached=config.get("detached", False),
    )


def _message(arguments: Mapping[str, Any]) -> str:
    """What the child is told: the task, and what else was given as JSON."""
    rest = dict(arguments)
    task = rest.pop("task", None)
    if not isinstance(task, str):
        return strict_json.dumps(dict(arguments)).decode()
    return f"{task}\n\n{strict_json.dumps(rest).decode()}" if rest else task


def _spawned(config: Mapping[str, Any], arguments: Mapping[str, Any], parent: Parent | None) -> Task:
    """What a model asks for by `spawn_subagent`."""
    spawning = spawning_of(config)
    if parent is None:
        raise InvalidInput(f"`{SPAWN}` is for runs of turns", hint="call `execute-turn`")
    wanted = arguments.get("tools") or []
    pool = [one for one in parent.tools if spawning.tool_pool is None or named(one, spawning.tool_pool)]
    for name in wanted:
        if name not in {alias for one in pool for alias in (one.name, one.canonical)}:
            listed = ", ".join(f"`{one.name}`" for one in pool[:20]) or "none"
            raise InvalidInput(
                f"`{str(name)[:64]}` is not in the pool", path="/tools", hint=f"there are: {listed}"
            )
    if parent.ledger.spawned >= spawning.max_spawns:
        raise PackhostError(
            f"the run has had its {spawning.max_spawns} subagents",
            code="LIMIT_EXCEEDED",
            hint="do it yourself",
        )
    parent.ledger.count_spawn()
    return Task(
        message=str(arguments["task"]),
        inline={"name": SPAWN, "system": arguments.get("system"), "model": spawning.default_model},
        allowed=list(wanted),
        max_turns=min(arguments.get("max_turns", spawning.default_max_turns), spawning.max_turns),
        timeout_ms=spawning.default_timeout_ms,
        nesting=spawning.allow_nesting,
        spawning=config,
    )


def _spec(tool: Tool, task: Task, context: CallContext, parent: Parent | None) -> dict[str, Any]:
    depth = 1 + depth_of(context)
    if depth > DEEPEST:
        raise PackhostError(
            f"subagents are {DEEPEST} deep already", code="LIMIT_EXCEEDED", hint="do it in this one"
        )
    inline = task.inline
    profile = inline.get("model") or (None if task.agent_id or parent is None else parent.model_profile)
    own = inline.get("limits") or {}
    asked: dict[str, Any] = {
        "model_profile": profile,
        "agent": task.agent_id,
        "messages": [{"role": "user", "content": task.message}],
        "tools": task.allowed if task.allowed is not None else inline.get("tools"),
        "loop": True,
        "limits": {**own, **_limits(task, own)},
        "approval": inline.get("approval"),
    }
    spec = turn_spec(context, asked, None, host_of(context).section(PACK))
    spec["limits"] = bounded(spec["limits"], parent)
    spec.update(depth=depth, nesting=task.nesting)
    spec["subagent"] = {"tool_name": tool.id.canonical, "agent_name": task.agent_name}
    if task.agent_id is None and inline.get("system"):
        spec["system"] = inline["system"]
    if parent is not None:
        spec.update(_from(parent, task))
    else:
        if (require := required_by(context)) and not task.detached:
            spec["approval"] = joined(spec.get("approval"), {"require": list(require)})
        if (within := within_of(context)) is not None:
            spec["within"] = list(within)
    if task.spawning is not None and task.nesting:
        spec["subagent_config"] = dict(task.spawning)
    return spec


def _limits(task: Task, own: Mapping[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if task.max_turns is not None:
        limits["max_turns"] = min(task.max_turns, own.get("max_turns", task.max_turns))
    if task.timeout_ms is not None:
        limits["wall_clock"] = task.timeout_ms / 1000
    return limits


def _from(parent: Parent, task: Task) -> dict[str, Any]:
    """What a child has of the run that calls it: of its tools those it may use, and its approvals."""
    allowed: Sequence[OfferedTool] = parent.tools
    if task.allowed is not None:
        allowed = [tool for tool in parent.tools if named(tool, task.allowed)]
    names = [tool.name for tool in allowed]
    found: dict[str, Any] = {"within": names}
    brought = [one for one in parent.definitions if one["name"] in names]
    if brought:
        found["runtime_tools"] = brought
    if parent.require is not None and not task.detached:
        found["approval"] = {"require": list(parent.require)}
    return found


def _problems(spec: ToolSpec) -> Iterator[str]:
    config = spec.config
    for name in config:
        if name not in _KEYS:
            listed = ", ".join(f"`{one}`" for one in _KEYS)
            yield Located(
                f"`config` of kind `subagent` has no `{name}`: there are {listed}", ("config", name)
            )
    if spec.target is not None:
        yield Located("a tool of kind `subagent` has no `target`", ("target",))
    if ("agent_id" in config) == ("agent" in config):
        yield Located("`config` has exactly one of `agent_id` and `agent`", ("config",))
    elif "agent_id" in config and not (isinstance(config["agent_id"], str) and config["agent_id"]):
        yield Located("`config.agent_id` is the name of a saved agent", ("config", "agent_id"))
    elif "agent" in config:
        yield from _agent_problems(config)
    allowed = config.get("allowed_tools")
    if allowed is not None and not (
        isinstance(allowed, list) and all(isinstance(one, str) for one in allowed)
    ):
        yield Located("`config.allowed_tools` is a list of names and patterns", ("config", "allowed_tools"))
    yield from _number_problems(config)
    if config.get("output_format", "text") not in FORMATS:
        listed = ", ".join(f"`{one}`" for one in FORMATS)
        yield Located(f"`config.output_format` is one of {listed}", ("config", "output_format"))
    for name in ("allow_nesting", "detached"):
        if not isinstance(config.get(name, False), bool):
            yield Located(f"`config.{name}` is true or false", ("config", name))


def _agent_problems(config: Mapping[str, Any]) -> Iterator[str]:
    agent = config["agent"]
    if not isinstance(agent, Mapping):
        yield Located("`config.agent` is an agent: `{model, system, limits}`", ("config", "agent"))
        return
    for name in agent:
        if name not in _AGENT:
            listed = ", ".join(f"`{one}`" for one in _AGENT)
            yield Located(f"an agent has no `{name}`: there are {listed}", ("config", "agent", name))
    for name in ("name", "model", "system"):
        if not isinstance(agent.get(name, ""), str):
            yield Located(f"`config.agent.{name}` is a text", ("config", "agent", name))
    if "allowed_tools" not in config:
        message = "an inline `agent` needs `allowed_tools`; `[]` is none at all"
        yield Located(message, ("config", "agent"))


def _number_problems(config: Mapping[str, Any]) -> Iterator[str]:
    for name, most in (("max_turns", 1000), ("timeout_ms", _LONGEST)):
        value = config.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            yield Located(f"`config.{name}` is a positive integer, at most {most}", ("config", name))
