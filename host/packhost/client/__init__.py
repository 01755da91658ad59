"""A typed client of the `/v1` API: `Client` for programs that wait, `AsyncClient` for those that do not."""

from packhost.client.aio import AsyncClient
from packhost.client.exchange import ApiError, ConnectionLost, Page
from packhost.client.local import (
    LocalTool,
    finish_with_local_tools,
    finish_with_local_tools_async,
    run_with_local_tools,
    run_with_local_tools_async,
)
from packhost.client.sync import Client
from packhost.client.values import (
    Approval,
    Detached,
    Envelope,
    Event,
    Grant,
    PausedReason,
    Question,
    Run,
)

__all__ = [
    "ApiError",
    "Approval",
    "AsyncClient",
    "Client",
    "ConnectionLost",
    "Detached",
    "Envelope",
    "Event",
    "Grant",
    "LocalTool",
    "Page",
    "PausedReason",
    "Question",
    "Run",
    "finish_with_local_tools",
    "finish_with_local_tools_async",
    "run_with_local_tools",
    "run_with_local_tools_async",
]
