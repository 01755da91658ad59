"""One way from a command to a host's operations: the running host, else a host in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio

from packhost.app import open_control
from packhost.cli.run import innermost
from packhost.control.base import Control

Result = TypeVar("Result")


def with_control(workspace: Path | None, work: Callable[[Control], Awaitable[Result]]) -> Result:
    """Run `work` with the control of the workspace's host; raises `PackhostError`."""

    async def inside() -> Result:
        async with open_control(workspace) as control:
            return await work(control)

    try:
        return anyio.run(inside)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


def request(workspace: Path | None, op: str, **params: Any) -> Any:
    """One operation; a parameter that is `None` is left out."""
    given = {name: value for name, value in params.items() if value is not None}
    return with_control(workspace, lambda control: control.request(op, given))
