"""Processes of packs from elsewhere have a limit, which is waited at for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.kinds import python
from packhost.kinds.python import PythonKind

pytestmark = pytest.mark.anyio

WAITS = """
import os, time
def handle(context, arguments):
    open(f"made-{os.getpid()}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    return True
"""


@pytest.fixture
async def narrow(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kind that runs two processes at once, without a kernel's help, in a folder of its own."""
    monkeypatch.setattr(python, "MAX_PROCESSES", 2)
    monkeypatch.setattr(python, "ROOM_WAIT", 0.2)
    kind = PythonKind(root, abi=0)
    yield kind, root
    await kind.close()


async def test_the_third_process_is_refused_after_a_while_and_let_in_once_there_is_room(
    narrow: Any, make_tool: Any, context: Any
) -> None:
    kind, root = narrow
    tool = make_tool(WAITS)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(kind.run, tool, {}, context)
            while len(list(root.glob("made-*"))) < 2:
                await anyio.sleep(0.01)
            with pytest.raises(PackhostError) as caught:
                await kind.run(tool, {}, context)
            assert (caught.value.code, caught.value.data["retry_after"]) == ("LIMIT_EXCEEDED", 5)
            (root / "go").touch()
        assert await kind.run(tool, {}, context) is True
