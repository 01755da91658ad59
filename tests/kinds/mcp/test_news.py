"""What a server tells of changes: passed on once in a while, to whom it concerns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.kinds.providing import Changed

pytestmark = pytest.mark.anyio
UPDATED = "notifications/resources/updated"


async def until(true: Any) -> None:
    with anyio.fail_after(10):
        while not true():
            await anyio.sleep(0.01)


async def test_news_that_come_thick_and_fast_are_passed_on_once_and_at_last(world: Any) -> None:
    heard: list[Changed] = []
    pack = world.server(resources="allow")
    world.kind.servers.provider(pack, heard.append)
    tell = [["notifications/prompts/list_changed", [""] * 500]]
    await world.call(pack, "flood", {"tell": tell})
    await until(lambda: len(heard) == 2)
    assert set(heard) == {Changed("prompts")}


async def test_a_server_tells_of_no_resource_that_nobody_wants_to_hear_of_from_it(world: Any) -> None:
    heard: list[Changed] = []
    pack = world.server(resources="allow")
    provider = world.kind.servers.provider(pack, heard.append)
    await provider.subscribe("test://one")
    tell = [[UPDATED, ["another://pack"]], [UPDATED, ["test://one"]]]
    await world.call(pack, "flood", {"tell": tell})
    await until(lambda: heard)
    await provider.unsubscribe("test://one")
    await world.call(pack, "flood", {"tell": [[UPDATED, ["test://one"]]]})
    assert heard == [Changed("resource", "test://one")]


async def test_a_server_that_was_started_anew_is_asked_again_for_what_somebody_hears_of(
    world: Any, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    pack = world.server("--marks", str(marks), resources="allow")
    await world.kind.servers.provider(pack, lambda change: None).subscribe("test://one")
    with pytest.raises(PackhostError, match="was lost"):
        await world.call(pack, "die")
    await world.call(pack, "pid")
    await until(lambda: marks.read_text().count("resources/subscribe test://one") == 2)
