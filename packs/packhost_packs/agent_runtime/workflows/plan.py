"""A workflow as it is written, checked whole before anything starts.

`{nodes: [{id, prompt | messages, depends_on?, join?, when?, wake_at?, model_profile?, agent?, tools?,
loop?, limits?}], limits?}`; in place of a prompt a node has `call: {tool, arguments}` or `value`. Whatever
is wrong is `InvalidInput` with the path of the offending value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from packhost.api import InvalidInput
from packhost_packs.agent_runtime.limits import seconds
from packhost_packs.agent_runtime.workflows.values import (
    INPUT,
    MEMBERS,
    TESTS,
    Condition,
    references,
    texts_in,
)

MAX_NODES = 64
_TEXTS = ("prompt", "messages", "call", "value")
_FIRST_YEAR, _LAST_YEAR = 1971, 9998
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}\Z", re.ASCII)
_NODE = frozenset(
    {
        *("id", "prompt", "messages", "depends_on", "join", "when", "wake_at"),
        *("model_profile", "agent", "tools", "loop", "limits", "runtime_tools", "call", "value"),
    }
)
_LIMITS = frozenset({"max_turns", "max_tool_calls", "wall_clock", "max_tokens", "max_retries"})


@dataclass(frozen=True, slots=True)
class Node:
    """One run of turns in a workflow; `turn` is its request, the texts of its messages still templates."""

    id: str
    turn: Mapping[str, Any]
    depends_on: tuple[str, ...] = ()
    join: Literal["all", "any", "after"] = "all"
    when: tuple[Condition, ...] = ()
    wake_at: str | None = None
    step: Mapping[str, Any] | None = None
    """`call` or `value` of a node that asks no model; `turn` is then empty."""

    def as_json(self) -> dict[str, Any]:
        """The node as a run's request keeps it."""
        return {
            "id": self.id,
            "turn": dict(self.turn),
            "depends_on": list(self.depends_on),
            "join": self.join,
            "when": [{"path": one.path, "test": one.test, "value": one.value} for one in self.when],
            "wake_at": self.wake_at,
            **({"step": dict(self.step)} if self.step is not None else {}),
        }


def node_of(raw: Mapping[str, Any]) -> Node:
    """A node out of a run's request."""
    return Node(
        raw["id"],
        raw["turn"],
        tuple(raw["depends_on"]),
        raw["join"],
        tuple(Condition(**one) for one in raw["when"]),
        raw["wake_at"],
        raw.get("step"),
    )


def wake_time(wake_at: str, ready: float) -> float:
    """When a node starts, in seconds since the epoch: a time, or `+10m` after it became ready."""
    if wake_at.startswith("+"):
        return ready + seconds(wake_at[1:])
    return datetime.fromisoformat(wake_at).timestamp()


def read_nodes(workflow: Mapping[str, Any], at: str = "/workflow") -> list[Node]:
    """The nodes of a workflow, `turn` with the members that a call of one turn has.

    Raises `InvalidInput` for whatever could not run: unknown members and nodes, an id twice, a cycle,
    a reference to a node that does not come before, a condition or time that cannot be read.
    """
    raws = workflow.get("nodes")
    if not isinstance(raws, list) or not 1 <= len(raws) <= MAX_NODES:
        raise InvalidInput(f"a workflow has 1 to {MAX_NODES} nodes", path=f"{at}/nodes", hint=_HINT)
    _known(workflow, frozenset({"nodes", "limits"}), at)
    nodes = [_node(raw, f"{at}/nodes/{index}") for index, raw in enumerate(raws)]
    places: dict[str, str] = {}
    for index, node in enumerate(nodes):
        place = f"{at}/nodes/{index}"
        if places.setdefault(node.id, place) != place:
            raise InvalidInput(f"two nodes have the id `{node.id}`", path=f"{place}/id", hint="rename one")
    for index, node in enumerate(nodes):
        place = f"{at}/nodes/{index}"
        for number, name in enumerate(node.depends_on):
            if name not in places:
                raise _unknown(name, places, f"{place}/depends_on/{number}")
    before = _ancestors(nodes, places)
    for node, raw in zip(nodes, raws, strict=True):
        texts = f"{places[node.id]}/{next(name for name in _TEXTS if name in raw)}"
        _check_references(node, before[node.id], places, texts)
    return nodes


def read_limits(raw: Any, at: str) -> Mapping[str, Any]:
    """Budgets as a call has them. Raises `InvalidInput`."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidInput("`limits` is not an object", path=at, hint="name budgets such as `max_turns`")
    _known(raw, _LIMITS, at)
    for name, value in raw.items():
        if name == "wall_clock":
            seconds(value if isinstance(value, str | int | float) else "")
        elif type(value) is not int or not 0 <= value <= 100_000_000:
            raise InvalidInput(
                f"`{name}` is not a whole number in range", path=f"{at}/{name}", hint="lower it"
            )
    return raw


_OF_TURN = ("prompt", "messages", "model_profile", "agent", "tools", "loop", "limits", "runtime_tools")
_HINT = "see docs/agent-runtime/workflows.md for what a workflow may hold"


def _node(raw: Any, at: str) -> Node:
    if not isinstance(raw, Mapping):
        raise InvalidInput("a node is not an object", path=at, hint=_HINT)
    _known(raw, _NODE, at)
    identity = raw.get("id")
    if not isinstance(identity, str) or not _ID.match(identity) or identity == INPUT:
        message = "a node's `id` is 1 to 32 of A-Z a-z 0-9 _ -, and not `input`"
        raise InvalidInput(message, path=f"{at}/id", hint="give it such a name")
    join = raw.get("join", "all")
    if join not in ("all", "any", "after"):
        raise InvalidInput(f"`join` is `{join}`", path=f"{at}/join", hint="write `all`, `any` or `after`")
    depends_on, wake_at = _depends_on(raw, at), _text(raw, "wake_at", at)
    if wake_at is not None:
        _check_time(wake_at, f"{at}/wake_at")
    when = _conditions(raw.get("when"), f"{at}/when")
    if "call" in raw or "value" in raw:
        return Node(identity, {}, depends_on, join, when, wake_at, _step(raw, at))
    turn = {
        "messages": _messages(raw, at),
        "model_profile": _text(raw, "model_profile", at),
        "agent": _text(raw, "agent", at),
        "tools": None if raw.get("tools") is None else list(_texts(raw, "tools", at)),
        "loop": raw.get("loop", True),
        "limits": read_limits(raw.get("limits"), f"{at}/limits"),
        "runtime_tools": raw.get("runtime_tools"),
    }
    if not isinstance(turn["runtime_tools"] or [], list):
        place = f"{at}/runtime_tools"
        raise InvalidInput("`runtime_tools` is not a list", path=place, hint="write `[{name: …}]`")
    if not isinstance(turn["loop"], bool):
        raise InvalidInput(
            "`loop` is neither true nor false", path=f"{at}/loop", hint="leave it out for true"
        )
    return Node(identity, turn, depends_on, join, when, wake_at)


def _depends_on(raw: Mapping[str, Any], at: str) -> tuple[str, ...]:
    depends_on = _texts(raw, "depends_on", at)
    if len(set(depends_on)) != len(depends_on):
        raise InvalidInput("a node is named twice", path=f"{at}/depends_on", hint="name each once")
    return depends_on


def _step(raw: Mapping[str, Any], at: str) -> dict[str, Any]:
    """A node that asks no model."""
    other = [name for name in (*_OF_TURN, "call", "value") if name in raw]
    if len(other) != 1:
        message = f"a node has one of `prompt`, `messages`, `call` and `value`, not {', '.join(other)}"
        raise InvalidInput(message, path=at, hint="take the others out")
    if "value" in raw:
        return {"value": raw["value"]}
    call = raw["call"]
    if not isinstance(call, Mapping) or not isinstance(call.get("tool"), str) or not call["tool"]:
        raise InvalidInput(
            "`call` names no `tool`", path=f"{at}/call", hint="write `{tool: NAME, arguments: {…}}`"
        )
    _known(call, frozenset({"tool", "arguments"}), f"{at}/call")
    if not isinstance(call.get("arguments", {}), Mapping):
        raise InvalidInput(
            "`arguments` is not an object", path=f"{at}/call/arguments", hint="write `{NAME: …}`"
        )
    return {"call": {"tool": call["tool"], "arguments": dict(call.get("arguments", {}))}}


def _messages(raw: Mapping[str, Any], at: str) -> list[dict[str, str]]:
    if ("prompt" in raw) == ("messages" in raw):
        raise InvalidInput("a node has either `prompt` or `messages`", path=at, hint="give one of them")
    if "prompt" in raw:
        return [{"role": "user", "content": _required(raw["prompt"], f"{at}/prompt")}]
    messages = raw["messages"]
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("`messages` is not a list of messages", path=f"{at}/messages", hint=_HINT)
    for index, message in enumerate(messages):
        place = f"{at}/messages/{index}"
        if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant"):
            raise InvalidInput("a message has the role `user` or `assistant`", path=place, hint=_HINT)
        _known(message, frozenset({"role", "content"}), place)
        _required(message.get("content"), f"{place}/content")
    if messages[-1]["role"] != "user":
        place = f"{at}/messages/{len(messages) - 1}"
        raise InvalidInput("the last message is not the user's", path=place, hint="end with the role `user`")
    return [dict(message) for message in messages]


def _conditions(raw: Any, at: str) -> tuple[Condition, ...]:
    if raw is None:
        return ()
    if isinstance(raw, Mapping):
        return (_condition(raw, at),)
    if not isinstance(raw, list) or not raw:
        raise InvalidInput("`when` is not a condition or a list of them", path=at, hint=_CONDITION)
    return tuple(_condition(one, f"{at}/{index}") for index, one in enumerate(raw))


_CONDITION = "write `{path: NODE.text, contains: WORD}`, or `equals`, or `exists: true`"


def _condition(raw: Any, at: str) -> Condition:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("path"), str):
        raise InvalidInput("a condition has no `path`", path=at, hint=_CONDITION)
    tests = [test for test in TESTS if test in raw]
    if len(tests) != 1:
        raise InvalidInput("a condition has one test", path=at, hint=_CONDITION)
    _known(raw, frozenset({"path", tests[0]}), at)
    if tests[0] == "exists" and not isinstance(raw["exists"], bool):
        raise InvalidInput("`exists` is neither true nor false", path=f"{at}/exists", hint=_CONDITION)
    return Condition(raw["path"], tests[0], raw[tests[0]])


def _check_time(text: str, at: str) -> None:
    hint = "write a time with its offset, such as `2027-01-31T09:00:00Z`, or `+10m`"
    if text.startswith("+"):
        try:
            seconds(text[1:])
        except InvalidInput as error:
            raise InvalidInput(error.message, path=at, hint=hint) from None
        return
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"`{text[:40]}` is not a time", path=at, hint=hint) from None
    if moment.tzinfo is None:
        raise InvalidInput(f"the time `{text[:40]}` has no offset", path=at, hint=hint)
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise InvalidInput(f"the time `{text[:40]}` is out of range", path=at, hint=hint)


def _ancestors(nodes: Sequence[Node], places: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Every node's earlier ones, at any depth. Raises `InvalidInput` for a cycle, naming it."""
    found: dict[str, frozenset[str]] = {}
    left = {node.id: node for node in nodes}
    while left:
        ready = [node for node in left.values() if all(name in found for name in node.depends_on)]
        if not ready:
            circle = _circle(left)
            shown = " → ".join(f"`{one}`" for one in circle)
            message = f"nodes wait for each other: {shown}"
            raise InvalidInput(message, path=f"{places[circle[0]]}/depends_on", hint="take one of them out")
        for node in ready:
            found[node.id] = frozenset(node.depends_on).union(*(found[name] for name in node.depends_on))
            del left[node.id]
    return found


def _circle(left: Mapping[str, Node]) -> list[str]:
    walked = [next(iter(left))]
    while True:
        following = next(name for name in left[walked[-1]].depends_on if name in left)
        if following in walked:
            return [*walked[walked.index(following) :], following]
        walked.append(following)


def _check_references(node: Node, before: Collection[str], places: Mapping[str, str], texts: str) -> None:
    written = [message["content"] for message in node.turn.get("messages", ())]
    written += texts_in(node.step)
    used = [(path, texts) for text in written for path in references(text)]
    used += [(one.path, f"{places[node.id]}/when") for one in node.when]
    for path, at in used:
        first, _, rest = path.partition(".")
        if first == INPUT:
            continue
        if first not in places:
            raise _unknown(first, places, at)
        if first not in before:
            hint = f"add `{first}` to its `depends_on`"
            raise InvalidInput(
                f"`{node.id}` refers to `{first}`, which need not come before it", path=at, hint=hint
            )
        member = rest.partition(".")[0]
        if member not in MEMBERS or (member != "json" and rest != member):
            hint = f"a node has {', '.join(f'`{first}.{one}`' for one in MEMBERS)}"
            raise InvalidInput(f"`{path}` is nothing that a node has", path=at, hint=hint)


def _unknown(name: str, places: Collection[str], at: str) -> InvalidInput:
    near = difflib.get_close_matches(name[:64], list(places), n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`" if near else f"nodes: {', '.join(f'`{one}`' for one in places)}"
    return InvalidInput(f"there is no node `{name[:64]}`", path=at, hint=hint)


def _known(raw: Mapping[str, Any], known: Collection[str], at: str) -> None:
    for name in raw:
        if name not in known:
            near = difflib.get_close_matches(str(name)[:64], list(known), n=1, cutoff=0.5)
            hint = f"did you mean `{near[0]}`" if near else f"known: {', '.join(sorted(known))}"
            raise InvalidInput(f"`{str(name)[:64]}` is not known here", path=f"{at}/{name}", hint=hint)


def _required(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput("a text is missing or empty", path=at, hint="write what the model is to do")
    return value


def _text(raw: Mapping[str, Any], name: str, at: str) -> str | None:
    value = raw.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(
            f"`{name}` is not a text", path=f"{at}/{name}", hint="write a name, or leave it out"
        )
    return value


def _texts(raw: Mapping[str, Any], name: str, at: str) -> tuple[str, ...]:
    values = raw.get(name)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise InvalidInput(f"`{name}` is not a list of names", path=f"{at}/{name}", hint="write `[name, …]`")
    return tuple(values)
