"""A workflow as one run: its nodes started when what they wait for is there, side by side.

What a node waits for: its dependencies, a condition on their results, a time. Without `when` it runs
once its dependencies have completed, all of them or, with `join: any`, the first; with `when` they
need only have ended, and the condition decides. With `join: after` it runs once all have ended and
none failed, also where some were skipped. A node for which that cannot come true is skipped.
Every step is written down before it is taken, so that a run goes on anywhere and no node runs twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.abc

from packhost.api import PackhostError, RunHandle, RunResult, RunStopped
from packhost_packs.agent_runtime.ledger import Share, spent_in
from packhost_packs.agent_runtime.limits import Limits, Spent
from packhost_packs.agent_runtime.loop import FAILED, run_turns
from packhost_packs.agent_runtime.workflows.outcome import result_of_workflow
from packhost_packs.agent_runtime.workflows.plan import Node, node_of, wake_time
from packhost_packs.agent_runtime.workflows.steps import run_step
from packhost_packs.agent_runtime.workflows.values import INPUT, MISSING, render, result_values

SIDE_BY_SIDE = 4
"""So many nodes run at once."""

_CANNOT_BEGIN = frozenset({"INVALID_INPUT", "NOT_FOUND", "MODEL_NOT_CONFIGURED", "CONFIG_INVALID"})


async def run_workflow(run: RunHandle) -> RunResult:
    """Run every node to its end; raises `RunStopped` when nothing is left to do before a time."""
    return await _Workflow(run).to_end()


class _Workflow:
    def __init__(self, run: RunHandle) -> None:
        self._run = run
        self._nodes = [node_of(raw) for raw in run.spec["nodes"]]
        self._limits = Limits(**run.spec["limits"])
        states = run.state.setdefault("nodes", {})
        self._states: dict[str, dict[str, Any]] = {
            node.id: states.setdefault(node.id, {"status": "waiting"}) for node in self._nodes
        }
        self._running: set[str] = set()
        self._awaiting: set[str] = set()
        """Nodes that go on once the run's caller has made calls for them."""
        self._changed = anyio.Event()
        self._stop: BaseException | None = None

    async def to_end(self) -> RunResult:
        """Go on from the state; raises `RunStopped`."""
        async with anyio.create_task_group() as group:
            while self._stop is None:
                self._changed = anyio.Event()
                await self._start_due(group)
                if not self._running and not self._changed.is_set():
                    break
                with anyio.move_on_after(self._until_next()):
                    await self._changed.wait()
        if self._stop is not None:
            raise self._stop
        if times := self._times():
            raise RunStopped("waiting", wake_at=min(times))
        if self._awaiting:
            raise RunStopped("client")
        outcome, result = result_of_workflow(self._nodes, self._states, self._branches, self._run.run_id)
        return RunResult(outcome, result, failed=outcome in FAILED)

    @property
    def _branches(self) -> Mapping[str, Any]:
        branches: Mapping[str, Any] = self._run.state.get("branches", {})
        return branches

    async def _start_due(self, group: anyio.abc.TaskGroup) -> None:
        """Start what is due, after it was written down that it starts."""
        self._look()
        starting: list[Node] = []
        for node in self._nodes:
            state = self._states[node.id]
            due = state["status"] == "ready" and (state["wake_at"] or 0) <= time.time()
            if (
                node.id in self._running
                or node.id in self._awaiting
                or not (due or state["status"] == "running")
            ):
                continue
            if len(self._running) + len(starting) < SIDE_BY_SIDE:
                state["status"] = "running"
                starting.append(node)
        try:
            await self._run.checkpoint()
        except RunStopped as stop:
            self._stop = stop
            return
        for node in starting:
            self._running.add(node.id)
            group.start_soon(self._work, node)

    def _look(self) -> None:
        """Decide for every node that waits whether it is ready or never will be."""
        while self._decided_one():
            pass  # what was skipped may decide a further one

    def _decided_one(self) -> bool:
        values = self._values()
        for node in self._nodes:
            state = self._states[node.id]
            if state["status"] == "waiting" and (verdict := self._verdict(node, values)) != "waiting":
                timed = verdict == "ready" and node.wake_at is not None
                wake = wake_time(node.wake_at or "", time.time()) if timed else None
                state.update(status=verdict, wake_at=wake)
                return True
        return False

    def _verdict(self, node: Node, values: Mapping[str, Any]) -> str:
        over = [name for name in node.depends_on if self._states[name]["status"] in ("ended", "skipped")]
        good = [name for name in over if self._states[name].get("outcome") == "completed"]
        all_over = len(over) == len(node.depends_on)
        if node.join == "any" and node.depends_on:
            met = bool(over) and _hold(node, values) if node.when else bool(good)
            return "ready" if met else "skipped" if all_over else "waiting"
        if not all_over:
            return "waiting"
        if node.join == "after":
            failed = [name for name in over if self._states[name].get("outcome", "completed") != "completed"]
            met = _hold(node, values) if node.when else not failed
            return "ready" if met else "skipped"
        met = _hold(node, values) if node.when else len(good) == len(node.depends_on)
        return "ready" if met else "skipped"

    def _values(self) -> dict[str, Any]:
        """What texts and conditions may refer to now."""
        values: dict[str, Any] = {INPUT: self._run.spec["input"]}
        for node in self._nodes:
            state = self._states[node.id]
            text = ended["result"]["text"] if (ended := self._ended(node.id)) else state.get("text", "")
            if state["status"] in ("ended", "skipped"):
                value = state.get("value", MISSING)
                values[node.id] = result_values(state["status"], state.get("outcome"), text, value)
        return values

    def _ended(self, identity: str) -> Mapping[str, Any] | None:
        ended: Mapping[str, Any] | None = self._branches.get(identity, {}).get("ended")
        return ended

    async def _work(self, node: Node) -> None:
        state = self._states[node.id]
        try:
            values = self._values()
            if node.step is not None:
                await self._step(node, state, values)
                return
            messages = [{**one, "content": render(one["content"], values)} for one in node.turn["messages"]]
            turn = {**node.turn, "messages": messages, "client_tools": self._run.spec.get("client_tools")}
            branch = await self._run.branch(node.id, turn)
            result = await run_turns(branch, Share(self._limits, lambda: self._elsewhere(node.id)))
            state.update(status="ended", outcome=result.outcome)
            await self._run.emit("node.ended", {"node": node.id, "outcome": result.outcome})
        except RunStopped as stop:
            if stop.how == "client":
                self._awaiting.add(node.id)
            else:
                self._stop = stop
        except PackhostError as error:
            if error.code in _CANNOT_BEGIN:
                told = {"issue": error.code, "message": error.message}
                state.update(status="ended", outcome="error", error=told)
            else:
                self._stop = error
        finally:
            self._running.discard(node.id)
            self._changed.set()

    async def _step(self, node: Node, state: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Bring a step that asks no model to its end."""
        before = dict(state)
        if "call" in (node.step or {}) and not state.get("called"):
            if self._called() >= self._limits.max_tool_calls:
                told = f"the run has had its {self._limits.max_tool_calls} tool calls"
                state.update(status="ended", outcome="limit_exceeded", text="")
                state["error"] = {"issue": "BUDGET_TOOL_CALLS", "message": told}
                return
            state["called"] = True
            await self._run.checkpoint(lazily=True)
        state.update(await run_step(self._run, node, before, values))
        state["status"] = "ended"
        await self._run.emit("node.ended", {"node": node.id, "outcome": state["outcome"]})

    def _called(self) -> int:
        """Tool calls so far, those of steps and those of turns."""
        steps = sum(bool(state.get("called")) for state in self._states.values())
        return steps + sum(spent_in(state).tool_calls for state in self._branches.values())

    def _elsewhere(self, identity: str) -> Spent:
        """What the other nodes have used."""
        total = Spent(tool_calls=sum(bool(state.get("called")) for state in self._states.values()))
        for name, state in self._branches.items():
            if name != identity:
                total = total.plus(spent_in(state))
        return total

    def _times(self) -> list[float]:
        """When nodes that are ready may start."""
        return [s["wake_at"] for s in self._states.values() if s["status"] == "ready" and s["wake_at"]]

    def _until_next(self) -> float:
        """Seconds until a node that is not due yet becomes so; one that is due waits for room alone."""
        now = time.time()
        return min((at - now for at in self._times() if at > now), default=float("inf"))


def _hold(node: Node, values: Mapping[str, Any]) -> bool:
    return all(condition.holds(values) for condition in node.when)
