"""`sandbox: kernel`: a server is held to what its manifest grants."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from packhost.errors import PackhostError, ToolFailed
from packhost.sandbox.probe import Proof

pytestmark = pytest.mark.anyio
SERVER = Path(__file__).parents[2] / "support" / "upstream_server.py"


def confined(world: Any, *flags: str, **more: Any) -> Any:
    """Our server in the sandbox, with the interpreter to read, and one folder to write."""
    own = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, str(SERVER.parent))}
    granted = world.folder / "granted"
    granted.mkdir(exist_ok=True)
    return world.server(
        *flags,
        sandbox="kernel",
        readable=sorted({*own, sys.prefix}),
        writable=[str(granted)],
        cwd=str(granted),
        **more,
    )


async def test_it_reads_and_writes_what_was_granted_and_nothing_else(
    world: Any, said: Any, proof: Proof
) -> None:
    world.proof = proof
    pack = confined(world)
    secret = world.root / "secret.txt"
    secret.write_text("secret")
    assert said(await world.call(pack, "write", {"text": f"{world.folder}/granted/a.txt=hello"})) == "written"
    assert said(await world.call(pack, "read", {"text": f"{world.folder}/granted/a.txt"})) == "hello"
    for path in (str(secret), "/etc/passwd", str(world.folder / "granted" / ".." / "work" / "secret.txt")):
        with pytest.raises(ToolFailed, match="Permission denied"):
            await world.call(pack, "read", {"text": path})
    for path in (f"{world.root}/b.txt", f"{world.folder}/up/pins.json"):
        with pytest.raises(ToolFailed, match="Permission denied"):
            await world.call(pack, "write", {"text": f"{path}=x"})
    assert world.kind.enforcement(world.tool(pack, "read")) == proof.level


async def test_a_server_that_asks_and_reports_does_so_from_the_sandbox_too(
    world: Any, said: Any, context: Any, proof: Proof
) -> None:
    world.proof = proof
    ctx = context()
    assert json.loads(said(await world.call(confined(world), "environment")))["env"]["LANG"] == "C.UTF-8"
    await world.call(confined(world), "steps", {"n": 2}, context=ctx)
    assert len(ctx.steps) == 2


async def test_where_the_kernel_enforces_nothing_it_is_not_run(world: Any) -> None:
    world.proof = Proof("advisory", 0, False, "this kernel has no Landlock")
    pack = confined(world)
    with pytest.raises(PackhostError, match="this kernel has no Landlock") as refused:
        await world.call(pack, "echo", {"text": "a"})
    assert refused.value.code == "ENFORCEMENT_UNAVAILABLE"
    assert world.kind.enforcement(world.tool(pack, "echo")) == "advisory"
