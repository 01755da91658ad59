"""Two configurations hold at once: what was accepted, and the file as it stands."""

from __future__ import annotations

import shlex
import subprocess

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WIDER = "packhost: 1\nbound: [path read **, path write src/**, path write .agent-runtime/**]\n"


async def names(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def code(client, tool, arguments):
    result = await client.call_tool(tool, arguments)
    return result.meta["packhost/refusal"]["code"] if result.is_error else "ok"


async def test_a_widening_edit_waits_until_a_person_accepts_it_in_the_dialog(world, dialog, era):
    asked = dialog("accept")
    async with world.client(era, asked) as client:
        write = ("workspace_write_file", {"path": "src/a.txt", "content": "x"})
        assert await code(client, *write) == "SCOPE_DENIED"
        world.write("packhost.yaml", WIDER)
        assert await code(client, *write) == "SCOPE_DENIED"
        await client.call_tool("packhost_status", {})
        assert "path write src/**" in asked.shown[0]
        assert await code(client, *write) == "ok"


async def test_a_declined_change_stays_out(world, dialog, era):
    world.write("packhost.yaml", WIDER)
    async with world.client(era, dialog("decline")) as client:
        await client.call_tool("packhost_status", {})
        assert await code(client, "workspace_write_file", {"path": "src/a", "content": "x"}) == "SCOPE_DENIED"


async def test_a_narrowing_edit_is_live_at_once_and_clients_hear_of_it(world):
    world.write("packhost.yaml", WIDER)
    world.accept()
    async with world.client() as client:
        assert "workspace_write_file" in await names(client)
        async with client.listen(tools_list_changed=True) as heard:
            world.write("packhost.yaml", "packhost: 1\nbound: [path read **]\n")
            with anyio.fail_after(10):
                async for _ in heard:
                    break
        assert "workspace_write_file" not in await names(client)


async def test_another_name_counts_once_it_is_accepted_and_clients_hear_of_it(world):
    async with world.client() as client:
        world.write("packhost.yaml", "packhost: 1\nnames: {'workspace:read_file': look}\n")
        assert "workspace_read_file" in await names(client)
        async with client.listen(tools_list_changed=True) as heard:
            world.accept()
            with anyio.fail_after(10):
                async for _ in heard:
                    break
        listed = {tool.name: tool.meta for tool in (await client.list_tools()).tools}
        assert "workspace_read_file" not in listed
        assert (listed["look"]["packhost/tool"], listed["look"]["packhost/own_name"]) == (
            "workspace:read_file",
            "workspace_read_file",
        )
        refused = await client.call_tool("workspace_read_file", {"path": "packhost.yaml"})
        assert "did you mean `look`?" in refused.content[0].text.lower()
        assert await code(client, "look", {"path": "packhost.yaml"}) == "ok"
    shown = world.run("tools", "show", "workspace:read_file").stdout
    assert "look, by `names` in packhost.yaml; its own is workspace_read_file" in " ".join(shown.split())
    (row,) = [one for one in world.json("tools", "list", "--json")["tools"] if one["wire"] == "look"]
    assert (row["tool"], row["own_name"]) == ("workspace:read_file", "workspace_read_file")
    assert "on the wire look" in world.run("tools", "list").stdout


async def test_a_broken_edit_keeps_the_last_good_file_and_says_so(world):
    world.write("packhost.yaml", WIDER)
    world.accept()
    async with world.client() as client:
        world.write("packhost.yaml", "packhost: 1\nbuond: []\n")
        assert await code(client, "workspace_write_file", {"path": "src/a", "content": "x"}) == "ok"
        status = await client.call_tool("packhost_status", {})
        assert "did you mean `bound`" in str(status.structured_content["problems"])


async def test_a_change_with_code_is_not_accepted_in_a_dialog(world, dialog):
    world.write("my-pack/pack.yaml", "packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools: []\n")
    world.write("packhost.yaml", "packhost: 1\npacks: [workspace, {path: ./my-pack}]\n")
    asked = dialog("accept")
    async with world.client("auto", asked) as client:
        status = await client.call_tool("packhost_status", {})
    assert asked.shown == []
    said = str(status.structured_content)
    assert "accept -w" in said
    assert "--yes" not in said


async def test_the_command_that_a_person_is_told_runs_no_module_of_the_workspace(world):
    world.write("packhost.yaml", WIDER)
    async with world.client() as client:
        told = (await client.call_tool("packhost_status", {})).structured_content["waiting"]["accept"]
    world.write("click.py", "raise SystemExit('the module of the workspace ran')")
    world.write("packhost/__init__.py", "raise SystemExit('the package of the workspace ran')")
    done = subprocess.run(
        [*shlex.split(told), "--help"], cwd=world.root, env=world.env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_pack_from_a_folder_runs_once_accepted_at_the_level_that_is_required(world):
    world.write(
        "my-pack/pack.yaml",
        "packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools:\n"
        "  - {name: hello, description: Says hello, kind: python, target: 'mine:hello', permission: read}\n",
    )
    world.write("my-pack/mine.py", "def hello(context, arguments):\n    return {'said': 'hello'}\n")
    world.write(
        "packhost.yaml",
        "packhost: 1\npacks: [workspace, {path: ./my-pack}]\nenforcement: {require: advisory}\n",
    )
    world.accept()
    async with world.client() as client:
        result = await client.call_tool("mine_hello", {})
    assert result.structured_content == {"said": "hello"}
    assert result.meta["packhost/call"]["enforcement"] in ("advisory", "partial", "kernel")


async def test_a_target_that_is_not_there_leaves_the_pack_out_and_names_the_line_and_the_nearest(world):
    world.write(
        "my-pack/pack.yaml",
        "packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools:\n"
        "  - {name: hello, description: Says hello, kind: python, target: 'mine:helo', permission: read}\n",
    )
    world.write("my-pack/mine.py", "def hello(context, arguments):\n    return {'said': 'hello'}\n")
    world.write("packhost.yaml", "packhost: 1\npacks: [workspace, {path: ./my-pack}]\n")
    world.accept()
    async with world.client() as client:
        assert "mine_hello" not in await names(client)
        status = await client.call_tool("packhost_status", {})
    said = str(status.structured_content["problems"])
    assert "mine/pack.yaml:6" in said
    assert "did you mean `hello`" in said


async def test_a_changed_pack_keeps_running_as_it_was_accepted(world):
    manifest = (
        "packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools:\n"
        "  - {name: hello, description: Says hello, kind: python, target: 'mine:hello', permission: read}\n"
    )
    world.write("my-pack/pack.yaml", manifest)
    world.write("my-pack/mine.py", "def hello(context, arguments):\n    return {'said': 'one'}\n")
    world.write(
        "packhost.yaml",
        "packhost: 1\npacks: [workspace, {path: ./my-pack}]\nenforcement: {require: advisory}\n",
    )
    world.accept()
    world.write("my-pack/mine.py", "def hello(context, arguments):\n    return {'said': 'two'}\n")
    async with world.client() as client:
        result = await client.call_tool("mine_hello", {})
        status = await client.call_tool("packhost_status", {})
    assert result.structured_content == {"said": "one"}
    assert "accepted copy runs on" in str(status.structured_content["problems"])
