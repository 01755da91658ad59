"""A run under every order of pause, resume, end, decision and kill: whole, and nothing twice.

The store is real and dies with its host: from the instant of a kill on nothing more is written.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from packhost.errors import PackhostError
from packhost.kinds.context import CallContext
from packhost.store.ops import approvals, sessions
from packhost.store.sqlite import SqliteStore

TOOLS = st.sampled_from(["lab_note", "lab_look", "lab_fail", "lab_ask", "lab_nobody"])
SCRIPTS = st.lists(st.lists(TOOLS, min_size=1, max_size=4), min_size=1, max_size=4)


class Mortal:
    """The store as one host has it; once dead it takes and gives nothing any more."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, op: Callable[..., Any], *args: Any, **more: Any) -> Any:
        if self.dead:
            await anyio.sleep_forever()
        return await self._store.write(op, *args, **more)

    def post(self, op: Callable[..., Any], *args: Any) -> Any:
        return None if self.dead else self._store.post(op, *args)


class Life:
    """A workspace, its present host, and one run in it."""

    def __init__(self, building: Any, folder: Path, script: list[Any], node: bool) -> None:
        self.store = SqliteStore(folder / "store.db", "w")
        root = folder / "work"
        (root / ".agent-runtime").mkdir(parents=True)
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self._building, self._root, self._script = building, root, script
        self._node = node
        self.ran: Counter[str] = Counter()
        self.hosts = 0
        self.lab: Any = None
        self.run_id = ""

    async def open(self) -> None:
        await self._next_host()
        messages = [{"role": "user", "content": "go"}]
        asked: dict[str, Any] = {"messages": messages, "loop": True}
        if self._node:
            asked = {"workflow": {"nodes": [{"id": "n", "prompt": "go"}]}}
        outcome = await self.lab.call("execute-turn", {**asked, "background": True})
        self.run_id = outcome.value["run_id"]

    async def _next_host(self) -> None:
        self.hosts += 1
        ready, self._stop = asyncio.Event(), asyncio.Event()
        mortal = Mortal(self.store)
        self._mortal = mortal

        async def live() -> None:
            building = self._building(mortal, self._root, self._descriptor)
            async with building.host(f"host_{self.hosts}") as lab:
                for name in ("note", "fail", "ask"):
                    lab.tool(name, self._tool(name))
                lab.tool("look", self._tool("look"), permission="read")
                lab.rule("ask", "lab:ask")
                lab.script(*self._script, {"text": "done"})
                self.lab = lab
                ready.set()
                await self._stop.wait()

        self._host = asyncio.create_task(live())
        await asyncio.wait_for(ready.wait(), 5)

    def _tool(self, name: str) -> Callable[..., Any]:
        mortal = self._mortal

        async def run(context: CallContext, arguments: dict[str, Any]) -> Any:
            assert not mortal.dead
            self.ran[f"{name} {arguments['id']}"] += 1
            await asyncio.sleep(0.001)
            if name == "fail":
                raise ValueError("no")
            return arguments["id"]

        return run

    async def kill(self) -> None:
        self._mortal.dead = True
        self._stop.set()
        await self._host
        await self._next_host()

    async def steer(self, act: str) -> None:
        with suppress(PackhostError):
            await getattr(self.lab.runs, act)(self.run_id, by="ann")

    async def decide(self, verdict: Any) -> None:
        for row in self.store.read(approvals.listing, "pending", 100):
            with suppress(PackhostError):
                await self.lab.gate.decide(row.id, verdict, by="ann", channel="cli")

    async def to_end(self) -> Any:
        with anyio.fail_after(20):
            while not (row := self.lab.row(self.run_id)).ended:
                if row.status != "running":
                    await self.steer("resume_by_person")
                await self.decide("approve")
                await asyncio.sleep(0.002)
        return row

    async def close(self) -> None:
        self._stop.set()
        await self._host
        await self.store.close()
        os.close(self._descriptor)

    def check_history(self, session: str, *, whole: bool) -> None:
        history = [kept.message for kept in self.store.read(sessions.history, session)]
        seen: list[str] = []
        for asked, answer in zip(history, [*history, {"content": []}][1:], strict=True):
            ids = [block["id"] for block in asked["content"] if block["type"] == "tool_call"]
            seen += ids
            assert not ids or [block.get("tool_use_id") for block in answer["content"]] == ids
        assert len(seen) == len(set(seen))
        if whole:
            assert len(seen) == sum(len(turn["tool_calls"]) for turn in self._script)
            self._check_results(history)

    def _check_results(self, history: list[Any]) -> None:
        """What the model was told fits what happened."""
        for message in history:
            for block in message["content"]:
                if block["type"] == "tool_result":
                    tool, times = block["tool_use_id"].split("-")[1], 0
                    times = self.ran[f"{tool} {block['tool_use_id']}"]
                    word = block["content"].partition(":")[0]
                    if word in ("NOT_EXECUTED", "TOOL_NOT_FOUND", "APPROVAL_DENIED", "LIMIT_EXCEEDED"):
                        assert times == 0, block
                    elif not block["is_error"]:
                        assert times >= 1, block


@pytest.mark.parametrize("node", [False, True])
def test_whatever_happens_in_whatever_order_a_run_ends_whole(building_type: Any, node: bool) -> None:
    class Machine(RuleBasedStateMachine):
        @initialize(script=SCRIPTS)
        def begin(self, script: list[list[str]]) -> None:
            turns = [
                {"tool_calls": [_call(f"{t}.{n}", name) for n, name in enumerate(turn)]}
                for t, turn in enumerate(script)
            ]
            self.folder = tempfile.TemporaryDirectory()
            self.runner = asyncio.Runner()
            self.life = self.runner.run(_made(Life(building_type, Path(self.folder.name), turns, node)))

        def do(self, awaitable: Any) -> Any:
            return self.runner.run(awaitable)

        @rule(steps=st.integers(0, 12))
        def go_on(self, steps: int) -> None:
            self.do(asyncio.sleep(steps / 2000))

        @rule(act=st.sampled_from(["pause_by_person", "resume_by_person"]))
        def steer(self, act: str) -> None:
            self.do(self.life.steer(act))

        @rule(verdict=st.sampled_from(["approve", "deny"]))
        def decide(self, verdict: str) -> None:
            self.do(self.life.decide(verdict))

        @rule()
        def kill(self) -> None:
            self.do(self.life.kill())

        @rule()
        def hold_while_paused(self) -> None:
            life = self.life
            if life.lab.row(life.run_id).status == "paused":
                before = life.ran.copy()
                self.do(asyncio.sleep(0.003))
                assert life.ran == before

        @rule()
        def abort(self) -> None:
            life = self.life
            self.do(life.steer("abort_by_person"))
            assert life.lab.row(life.run_id).ended

        def teardown(self) -> None:
            if not hasattr(self, "life"):
                return
            life = self.life
            try:
                row = self.do(life.to_end())
                session = f"{row.id}.n" if node else row.session_id
                aborted = row.status == "aborted"
                assert aborted or row.outcome == "completed", json.loads(row.result_json)
                life.check_history(session, whole=not aborted)
                writes = [times for key, times in life.ran.items() if not key.startswith("look")]
                assert max(writes, default=0) <= 1, life.ran
            finally:
                self.do(life.close())
                self.runner.close()
                self.folder.cleanup()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=10,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _call(place: str, name: str) -> dict[str, Any]:
    identity = f"{place}-{name.removeprefix('lab_')}"
    return {"id": identity, "name": name, "arguments": {"id": identity}}


async def _made(life: Life) -> Life:
    await life.open()
    return life
