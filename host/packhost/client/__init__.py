"""A typed client of the `/v1` API: `Client` for programs that wait, `AsyncClient` for those that do not."""

from packhost.client.aio import AsyncClient
from packhost.client.exchange import ApiError, ConnectionLost
from packhost.client.sync import Client
from packhost.client.values import Approval, Detached, Envelope, Event, Grant, PausedReason, Run

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
    "PausedReason",
    "Run",
]
