"""A pack from elsewhere, run by the real command: confined, shown as such, recorded as such."""

from __future__ import annotations

import json
import os

import pytest

from packhost.sandbox import landlock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(landlock.detect() < landlock.SCOPES, reason="this kernel does not enforce everything"),
]

SETTINGS = """
packhost: 1
packs:
  - path: mine
bound: [path read **, path write out/**]
enforcement: {require: kernel}
"""

MANIFEST = """
packhost: 1
id: mine
version: '1'
title: Mine
tools:
  - name: look
    description: Looks around.
    kind: python
    target: tools:look
    permission: read
    required_scopes: [path read notes/**]
    input_schema: {type: object, properties: {path: {type: string}}}
  - name: keep
    description: Keeps something.
    kind: python
    target: tools:keep
    permission: write
    required_scopes: [path read out/**, path write out/**]
    input_schema: {type: object, properties: {text: {type: string}}}
"""

TOOLS = """
import shutil

def look(context, arguments):
    with open(arguments["path"]) as file:
        return {"content": file.read(), "same": context.files.read("notes/a.txt").decode()}

def keep(context, arguments):
    with open("out/kept.txt", "w") as file:
        file.write(arguments["text"])
    shutil.copy2("out/kept.txt", "out/copy.txt")
    try:
        open("out/packhost.yaml", "w")
    except PermissionError:
        return "kept"
"""


@pytest.fixture
def pack(world):
    """A workspace with the pack in it, accepted."""
    world.write("packhost.yaml", SETTINGS)
    world.write("mine/pack.yaml", MANIFEST)
    world.write("mine/tools.py", TOOLS)
    world.write("notes/a.txt", "a note")
    world.write("secret.txt", "a secret")
    world.accept()
    return world


def outcome(world, tool, **arguments):
    return world.json("call", tool, json.dumps(arguments), code=None)


def test_its_tools_are_shown_with_the_level_that_was_proved(pack):
    assert pack.json("tools", "show", "mine:look")["enforcement"] == "kernel"


def test_its_handlers_reach_what_they_declare_and_nothing_else(pack):
    found = outcome(pack, "mine:look", path="notes/a.txt")
    assert found["value"] == {"content": "a note", "same": "a note"}
    assert found["enforcement"] == "kernel"
    for path in ("secret.txt", "mine/tools.py", "/etc/passwd", os.path.expanduser("~")):
        refused = outcome(pack, "mine:look", path=path)
        assert "PermissionError" in str(refused), refused
    assert outcome(pack, "mine:keep", text="mine")["value"] == "kept"
    assert (pack.root / "out" / "copy.txt").read_text() == "mine"
    assert not (pack.root / "out" / "packhost.yaml").exists()


async def test_the_answer_and_the_record_say_at_which_level_it_ran(pack):
    async with pack.client() as client:
        result = await client.call_tool("mine_keep", {"text": "mine"})
    assert result.meta["packhost/call"]["enforcement"] == "kernel"
    pack.stop()
    events = [json.loads(line) for line in pack.run("audit", "export").stdout.splitlines()]
    assert "kernel" in {
        event["data"].get("enforcement") for event in events if isinstance(event.get("data"), dict)
    }
