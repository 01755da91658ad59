"""Servers upstream that hang, flood, lie, change, die: what becomes of them, and of the calls."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.context import Elicited
from packhost.kinds.mcp import upstream as care
from packhost.kinds.mcp.pins import PINS_FILE, pins_text
from packhost.manifest.upstream import UpstreamSpec
from packhost.workspace.observed import Observed

pytestmark = pytest.mark.anyio
LEAKY = """
import json, os, sys
key = os.environ["KEY"]
for line in sys.stdin:
    message = json.loads(line)
    tool = {"name": "get", "description": key, "inputSchema": {"type": "object"}}
    answer = {"result": {"tools": [tool]}}
    if message["method"] == "initialize":
        about = {"name": f"a server with {key}", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": about}}
        if os.path.exists(sys.argv[1]):
            answer = {"error": {"code": -1, "message": f"no {key}"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def until(true: Any) -> None:
    """Wait for something that is bound to come about."""
    with anyio.fail_after(15):
        while not true():
            await anyio.sleep(0.01)


def state(world: Any, pack: str = "up") -> Any:
    return next(one for one in world.kind.servers.listing() if one["pack"] == pack)


async def test_nothing_is_started_before_a_call(world: Any, said: Any) -> None:
    pack = world.server()
    world.kind.servers.of(pack)
    assert state(world)["state"] == "not started"
    assert said(await world.call(pack, "echo", {"text": "a"})) == "a"
    assert state(world)["state"] == "running"


async def test_calls_that_come_at_once_share_one_start(world: Any, said: Any) -> None:
    pack = world.server()
    pids: list[str] = []

    async def call() -> None:
        pids.append(said(await world.call(pack, "pid")))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(call)
    assert len(set(pids)) == 1


async def test_giving_up_the_call_that_started_it_does_not_take_it_from_the_others(
    world: Any, said: Any
) -> None:
    pack = world.server()
    with anyio.move_on_after(0):
        await world.call(pack, "pid")
    assert said(await world.call(pack, "echo", {"text": "a"})) == "a"


async def test_a_server_that_dies_in_a_call_leaves_its_effects_unknown(world: Any, said: Any) -> None:
    pack = world.server()
    first = said(await world.call(pack, "pid"))
    with pytest.raises(PackhostError, match="it ended with status 3") as cut:
        await world.call(pack, "die")
    assert cut.value.code == "EFFECTS_UNKNOWN"
    assert said(await world.call(pack, "pid")) != first
    with pytest.raises(ToolFailed, match="was lost before it answered") as read:
        await world.call(pack, "die", permission="read")
    assert read.value.hint.startswith("make the call again")


async def test_a_call_that_was_cut_off_is_not_made_again(world: Any, tmp_path: Any) -> None:
    marks = tmp_path / "marks"
    pack = world.server("--marks", marks)
    for permission in ("write", "read"):
        with pytest.raises(PackhostError):
            await world.call(pack, "die", permission=permission)
    assert marks.read_text().count("call die") == 2


async def test_a_server_that_fails_is_tried_again_ever_later_and_calls_are_told_so(world: Any) -> None:
    pack = world.server("--shy", era="modern")
    with pytest.raises(ToolFailed, match="did not start: it ended"):
        await world.call(pack, "echo")
    for _ in range(2):
        with pytest.raises(ToolFailed, match="did not start"):
            await world.call(pack, "echo")
    begun = time.monotonic()
    with pytest.raises(ToolFailed, match=r"fails \(3 times in a row") as refused:
        await world.call(pack, "echo")
    assert time.monotonic() - begun < 0.5
    assert 1 <= refused.value.data["retry_after"] <= 2
    assert "packhost upstream logs up" in refused.value.hint


async def test_a_program_that_there_is_not_is_named(world: Any) -> None:
    pack = world.pack(UpstreamSpec(command=("no-such-server",)), {})
    with pytest.raises(ToolFailed, match="there is no program `no-such-server`"):
        await world.call(pack, "echo")


async def test_a_server_that_is_given_too_much_is_not_started_and_takes_no_other_with_it(
    world: Any, said: Any
) -> None:
    well, large = world.server(pack="well"), world.server(pack="large", env={"TEXT": "x" * 200_000})
    pid = said(await world.call(well, "pid"))
    with pytest.raises(ToolFailed, match="its command and environment have"):
        await world.call(large, "pid")
    assert said(await world.call(well, "pid")) == pid


async def test_a_server_that_answers_nothing_is_not_waited_for_beyond_its_time(world: Any) -> None:
    pack = world.server("--mute", start_timeout="500ms")
    with pytest.raises(ToolFailed, match=r"it did not answer within 0\.5 s"):
        await world.call(pack, "echo")


async def test_one_server_that_hangs_delays_no_other(world: Any, said: Any) -> None:
    hung, well = world.server("--mute", pack="hung"), world.server(pack="well")
    await world.call(well, "pid")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.call(hung, "echo"))
        await until(lambda: any(one["pack"] == "hung" for one in world.kind.servers.listing()))
        begun = time.monotonic()
        for _ in range(20):
            await world.call(well, "echo", {"text": "a"})
        assert time.monotonic() - begun < 2
        group.cancel_scope.cancel()


async def test_one_call_that_hangs_delays_no_other_of_its_server(world: Any, said: Any) -> None:
    pack = world.server()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.call(pack, "hang", {"n": 60}))
        with anyio.fail_after(10):
            assert said(await world.call(pack, "echo", {"text": "a"})) == "a"
        group.cancel_scope.cancel()


async def test_a_server_gets_so_many_calls_at_once_and_no_more(world: Any) -> None:
    pack = world.server(concurrency=2)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(lambda: world.call(pack, "hang", {"n": 60}))
        await until(lambda: world.kind.servers.listing() and state(world).get("calls") == 2)
        await anyio.sleep(0.1)  # a third would have come by now
        assert state(world)["calls"] == 2
        group.cancel_scope.cancel()


async def test_a_server_that_answers_nothing_after_a_call_was_given_up_is_ended(
    world: Any, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(care, "ANSWERS", 0.3)
    pack = world.server()
    first = said(await world.call(pack, "pid"))
    with anyio.move_on_after(0.1):
        await world.call(pack, "deaf", {"n": 60})
    await until(lambda: state(world)["state"] == "not started")
    assert said(await world.call(pack, "pid")) != first
    assert "answered nothing" in world.kind.servers.words("up")


async def test_a_server_that_still_answers_is_left_alone(world: Any, said: Any) -> None:
    pack = world.server()
    first = said(await world.call(pack, "pid"))
    with anyio.move_on_after(0.1):
        await world.call(pack, "hang", {"n": 60})
    await anyio.sleep(0.3)  # the ping and its answer
    assert said(await world.call(pack, "pid")) == first


async def test_a_server_that_nobody_calls_may_be_ended_and_comes_back(world: Any, said: Any) -> None:
    pack = world.server(idle_timeout="100ms")
    first = said(await world.call(pack, "pid"))
    await until(lambda: state(world)["state"] == "not started")
    assert said(await world.call(pack, "pid")) != first


@pytest.mark.parametrize(
    "flood",
    [
        {},
        {"line": "no message"},
        {"line": ""},
        {"line": '{"jsonrpc":"2.0","id":99999,"result":{}}'},
        {"line": f"[{','.join(['{}'] * 1000)}]"},
    ],
    ids=["notifications", "noise", "blank", "answers of nobody's", "batches"],
)
async def test_a_flood_of_what_nobody_asked_for_leaves_the_loop_to_others(
    world: Any, flood: dict[str, str]
) -> None:
    flooding, well = world.server(pack="flooding"), world.server(pack="well")
    await world.call(well, "pid")
    await world.call(flooding, "pid")
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.call(flooding, "flood", flood))
        await anyio.sleep(0.05)
        begun = time.monotonic()
        for _ in range(20):
            await world.call(well, "echo", {"text": "a"})
        taken = time.monotonic() - begun
        group.cancel_scope.cancel()
    assert taken < 0.5


async def test_a_message_that_is_nested_too_deeply_ends_its_server_and_not_the_wait_for_it(
    world: Any, said: Any
) -> None:
    pack = world.server()
    with pytest.raises(PackhostError, match="nested too deeply") as caught, anyio.fail_after(10):
        await world.call(pack, "flood", {"line": "[" * 5_000 + "]" * 5_000})
    assert caught.value.code == "EFFECTS_UNKNOWN"
    assert said(await world.call(pack, "echo", {"text": "well"})) == "well"


async def test_what_it_prints_is_kept_to_its_end_without_secrets(world: Any, said: Any) -> None:
    world.secrets["KEY"] = "s3cret-value"
    pack = world.server(env={"KEY": "{{secret:KEY}}"})
    assert said(await world.call(pack, "chatter")) == "chattered"
    await until(lambda: "the last word" in world.kind.servers.words("up"))
    words = world.kind.servers.words("up")
    assert len(words) <= 64 * 1024
    assert "s3cret" not in words
    assert "not a message: this is no message" in words


async def test_no_secret_is_told_or_kept_of_what_a_server_says_of_itself(world: Any, tmp_path: Path) -> None:
    world.secrets["KEY"] = "s3cret-value"
    script = tmp_path / "server.py"
    script.write_text(LEAKY)
    command = (sys.executable, str(script), str(tmp_path / "broken"))
    spec = UpstreamSpec(command=command, env={"KEY": "{{secret:KEY}}"}, era="legacy", idle_timeout="50ms")
    pack = world.pack(spec, {})
    with pytest.raises(PackhostError, match="withheld"):
        await world.call(pack, "get")
    (kept,) = (world.state / "upstreams").glob("*.json")
    listed = [world.kind.servers.listing()]
    (tmp_path / "broken").touch()
    await until(lambda: state(world)["state"] == "not started")
    with pytest.raises(PackhostError, match="did not start"):
        await world.call(pack, "get")
    listed.append(world.kind.servers.listing())
    assert "no [REDACTED]" in str(listed[1])
    assert "s3cret" not in f"{listed} {kept.read_text()}"


async def test_a_tool_that_is_not_what_was_accepted_is_withheld_and_others_go_on(
    world: Any, said: Any
) -> None:
    definitions = dict(world.definitions())
    definitions["tool:echo"] = {**definitions["tool:echo"], "description": "Another."}
    pack = world.server(pins=False)
    (pack.folder / PINS_FILE).write_bytes(pins_text(definitions))
    with pytest.raises(PackhostError, match="defines it otherwise than was accepted") as withheld:
        await world.call(pack, "echo", {"text": "a"})
    assert withheld.value.code == "PACK_CHANGED"
    assert said(await world.call(pack, "add", {"numbers": [1]})) == "1"
    seen = Observed(world.state).recall("up")
    assert seen is not None
    assert seen["tool:echo"]["description"] == "The tool echo."


async def test_a_pack_of_whose_server_nothing_was_accepted_may_do_nothing(world: Any) -> None:
    with pytest.raises(PackhostError, match="nobody has accepted") as withheld:
        await world.call(world.server(pins=False), "echo", {"text": "a"})
    assert withheld.value.code == "PACK_CHANGED"
    said = await world.call(world.server(pins=False, pinned=False, pack="open"), "echo", {"text": "a"})
    assert said.blocks[0]["text"] == "a"


async def test_a_definition_that_changes_in_mid_run_is_withheld_from_the_next_call_on(
    world: Any, said: Any
) -> None:
    pack = world.server()
    assert said(await world.call(pack, "echo", {"text": "a"})) == "a"
    await world.call(pack, "poison")
    with pytest.raises(PackhostError) as withheld:
        await world.call(pack, "echo", {"text": "a"})
    assert withheld.value.code == "PACK_CHANGED"
    assert said(await world.call(pack, "fail", {"text": "x"}, upstream_name="pid", permission="read"))
    assert "id_rsa" in (Observed(world.state).recall("up") or {})["tool:echo"]["description"]


async def test_a_tool_that_comes_in_mid_run_is_nobodys_before_it_is_accepted(world: Any, said: Any) -> None:
    pack = world.server()
    await world.call(pack, "grow")
    with pytest.raises(PackhostError, match="nobody has accepted"):
        await world.call(pack, "extra")
    assert said(await world.call(pack, "echo", {"text": "a"})) == "a"


async def test_a_tool_that_the_server_does_not_have_is_said_so(world: Any) -> None:
    with pytest.raises(PackhostError, match="has no tool `gone`"):
        await world.call(world.server(), "gone")


async def test_the_servers_of_packs_that_are_gone_are_ended(world: Any, said: Any, running: Any) -> None:
    pack = world.server()
    pid = int(said(await world.call(pack, "pid")))
    world.kind.keep(["other"])
    await until(lambda: not running([pid]))


async def test_a_pack_that_changed_gets_a_server_of_its_own(world: Any, said: Any, running: Any) -> None:
    pid = int(said(await world.call(world.server(), "pid")))
    again = world.server(env={"MODE": "other"})
    assert int(said(await world.call(again, "pid"))) != pid
    await until(lambda: not running([pid]))


async def test_a_person_who_takes_long_holds_up_nobody_else(world: Any, context: Any, said: Any) -> None:
    pack = world.server()
    ctx = context(answers=[Elicited("accept", {"seat": "aisle"})], patience=anyio.Event())
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.call(pack, "ask", {}, context=ctx))
        await ctx.waits.wait()
        for _ in range(5):
            assert said(await world.call(pack, "echo", {"text": "a"})) == "a"
        ctx.patience.set()


async def test_twenty_servers_with_five_hundred_tools_start_at_once(world: Any, said: Any) -> None:
    packs = [world.server("--tools", 0, pack=f"up{n}") for n in range(20)]
    pids: list[str] = []

    async def call(pack: Any) -> None:
        pids.append(said(await world.call(pack, "pid")))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for pack in packs:
                group.start_soon(call, pack)
    assert len(set(pids)) == 20
    await asyncio.sleep(0)
    assert os.path.isdir(f"/proc/{pids[0]}")
