"""Waiting for what is committed, and where consoles can be found."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from packhost.app.entry import RemoteControl
from packhost.app.host import Host
from packhost.control.base import Control
from packhost.errors import InvalidInput

pytestmark = pytest.mark.anyio
URL = "http://127.0.0.1:4321"


async def happen(host: Host) -> int:
    return await host.store.write(lambda tx: tx.emit("test.event", {}, actor="t"))


@pytest.fixture(params=["here", "by the socket"])
def control(request: pytest.FixtureRequest, host: Host) -> Control:
    """Both ways to a host's operations."""
    return host.control if request.param == "here" else RemoteControl(host.root.socket)


async def test_what_was_committed_before_is_told_at_once(host: Host, control: Control) -> None:
    last = await happen(host)
    with anyio.fail_after(5):
        assert await control.request("changes.wait", {"after": last - 1}) == {"head": last, "changed": True}


async def test_a_wait_ends_with_the_next_event(host: Host, control: Control) -> None:
    last, found = await happen(host), dict[str, Any]()

    async def wait() -> None:
        found.update(await control.request("changes.wait", {"after": last, "within": 60}))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            await happen(host)
    assert found == {"head": last + 1, "changed": True}


async def test_a_wait_ends_after_its_time(host: Host, control: Control) -> None:
    last = await happen(host)
    assert await control.request("changes.wait", {"after": last, "within": 0}) == {
        "head": last,
        "changed": False,
    }


async def test_a_number_that_was_never_written_is_answered_at_once(host: Host, control: Control) -> None:
    last = await happen(host)
    with anyio.fail_after(5):
        assert (await control.request("changes.wait", {"after": last + 9}))["head"] == last


@pytest.mark.parametrize("given", [{"after": -1}, {"after": "1"}, {"within": 61}])
async def test_a_wait_without_bounds_is_refused(host: Host, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await host.control.request("changes.wait", given)


async def test_a_console_is_known_until_it_goes(host: Host, control: Control) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.request, "console.opened", {"url": URL})
        with anyio.fail_after(5):
            while (await host.control.request("status", {}))["console"] != URL:
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        while (await host.control.request("status", {}))["console"] is not None:
            await anyio.sleep(0.005)


@pytest.mark.parametrize(
    "url", ["http://example.com:80", "javascript:1", "http://127.0.0.1:1/x", "http://127.0.0.1:1\n"]
)
async def test_nobody_is_sent_to_another_address(host: Host, url: str) -> None:
    with pytest.raises(InvalidInput):
        await host.control.request("console.opened", {"url": url})
