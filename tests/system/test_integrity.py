"""The accepted copy of a pack runs, compiled from source, and nothing that was put in its place."""

from __future__ import annotations

import importlib.util
import py_compile
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

GOOD = "def say(context, arguments):\n    return {'said': 'good'}\n"
EVIL = "def say(context, arguments):\n    return {'said': 'evil'}\n"
CONFIG = "packhost: 1\npacks: [workspace, {path: ./mine}]\nenforcement: {require: advisory}\n"
MANIFEST = (
    "packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools:\n"
    "  - {name: say, description: Says it., kind: python, target: 'mine:say', permission: read}\n"
)


@pytest.fixture
def mine(world):
    """A pack by path, accepted."""
    world.write("mine/pack.yaml", MANIFEST)
    world.write("mine/mine.py", GOOD)
    world.write("packhost.yaml", CONFIG)
    world.accept()
    return world


def copy_of(world) -> Path:
    """The accepted copy in the state folder."""
    (found,) = Path(world.env["XDG_STATE_HOME"]).glob("packhost/*/packs/*")
    return found


def poison(folder: Path, scratch: Path) -> None:
    """Compiled code of another source, which claims never to need a look at the source."""
    (scratch / "mine.py").write_text(EVIL)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = Path(importlib.util.cache_from_source(str(folder / "mine.py")))
    for target in (cached, folder / "mine.pyc"):
        py_compile.compile(
            str(scratch / "mine.py"), cfile=str(target), doraise=True, invalidation_mode=unchecked
        )


def said(world) -> str:
    return str(world.json("call", "mine:say", "{}")["value"]["said"])


def test_compiled_code_in_the_folder_is_not_taken_along(mine, tmp_path):
    poison(mine.root / "mine", tmp_path)
    mine.write("packhost.yaml", CONFIG.replace("{path: ./mine}", "{path: mine}"))
    mine.accept()
    assert said(mine) == "good"


def test_compiled_code_in_the_accepted_copy_is_not_run(mine, tmp_path):
    poison(copy_of(mine), tmp_path)
    assert said(mine) == "good"
    assert mine.json("accept")["accepted"] is True


def test_an_edit_of_the_folder_changes_nothing_until_it_is_accepted(mine):
    mine.write("mine/mine.py", EVIL)
    assert said(mine) == "good"
    mine.accept()
    assert said(mine) == "evil"


@pytest.mark.parametrize("name", ["mine.py", "pack.yaml", "json.py"])
def test_a_file_replaced_in_the_accepted_copy_takes_the_pack_out(mine, name):
    (copy_of(mine) / name).write_text(EVIL if name.endswith(".py") else MANIFEST + "# more\n")
    assert "TOOL_NOT_FOUND" in mine.run("call", "mine:say", "{}", code=2).stderr
    assert "gone or damaged" in mine.run("doctor", code=1).stdout


def test_a_folder_swapped_for_a_link_changes_nothing(mine, tmp_path):
    other = tmp_path / "other"
    (mine.root / "mine").rename(other)
    (other / "mine.py").write_text(EVIL)
    (mine.root / "mine").symlink_to(other)
    assert said(mine) == "good"
    assert "is not what was accepted" in mine.run("doctor").stdout


async def test_a_running_host_notices_a_replaced_copy_and_an_edited_source(mine):
    async with mine.client() as client:
        assert not (await client.call_tool("mine_say", {})).is_error
        mine.write("mine/mine.py", EVIL)
        problems = ""
        with anyio.fail_after(5):
            while "is not what was accepted" not in problems:
                await anyio.sleep(0.1)
                status = await client.call_tool("packhost_status", {})
                problems = str(status.structured_content.get("problems"))
        (copy_of(mine) / "mine.py").write_text(EVIL)
        with anyio.fail_after(5):
            while not (result := await client.call_tool("mine_say", {})).is_error:
                await anyio.sleep(0.1)
        assert result.meta["packhost/refusal"]["code"] == "TOOL_NOT_FOUND"


async def test_a_running_host_keeps_to_the_root_that_it_opened_and_says_so(mine, tmp_path):
    mine.write("kept.txt", "the old one\n")
    async with mine.client() as client:
        assert not (await client.call_tool("workspace_read_file", {"path": "kept.txt"})).is_error
        mine.root.rename(tmp_path / "away")
        mine.root.mkdir()
        mine.write("kept.txt", "the new one\n")
        mine.write("packhost.yaml", "packhost: 1\nbound: [path read **, path write **]\n")
        problems = ""
        with anyio.fail_after(5):
            while "is not the one that was opened" not in problems:
                await anyio.sleep(0.1)
                status = await client.call_tool("packhost_status", {})
                problems = str(status.structured_content.get("problems"))
        result = await client.call_tool("workspace_read_file", {"path": "kept.txt"})
        assert result.structured_content["content"] == "the old one\n"
        assert "is not the one that was opened" in (
            await anyio.to_thread.run_sync(lambda: mine.run("doctor", code=1).stdout)
        )


def test_a_pack_by_path_never_runs_before_consent(world):
    world.write("mine/pack.yaml", MANIFEST)
    world.write("mine/mine.py", f"raise SystemExit('ran')\n{GOOD}")
    world.write("packhost.yaml", CONFIG)
    world.run("tools", "list", "--all")
    world.run("doctor", code=None)
    assert "TOOL_NOT_FOUND" in world.run("call", "mine:say", "{}", code=2).stderr
    assert "mine:" not in world.run("tools", "list").stdout
