"""The two protocols as the transport uses them: where to, which headers, which body, which reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from packhost_packs.agent_runtime.providers import chat, messages
from packhost_packs.agent_runtime.providers.arguments import schemas_of
from packhost_packs.agent_runtime.providers.base import Reply, TurnRequest
from packhost_packs.agent_runtime.providers.chat_stream import ChatStream
from packhost_packs.agent_runtime.providers.messages_stream import MessagesStream
from packhost_packs.agent_runtime.stream.limits import SafetyLimits
from packhost_packs.agent_runtime.stream.machine import StreamMachine


class WireProtocol(Protocol):
    """A provider's protocol, without any I/O."""

    @property
    def path(self) -> str:
        """The path below the base URL."""

    def headers(self, *, stream: bool) -> Mapping[str, str]:
        """Headers of a request, but for the key."""

    def body(self, request: TurnRequest, *, stream: bool) -> bytes:
        """The body of a request; raises `PackhostError`."""

    def parse(self, body: bytes, request: TurnRequest, limits: SafetyLimits) -> Reply:
        """A whole reply; raises `TurnFault`."""

    def machine(self, request: TurnRequest, limits: SafetyLimits) -> StreamMachine:
        """What a streamed reply is fed to."""


@dataclass(frozen=True, slots=True)
class MessagesProtocol:
    """`messages_compatible`."""

    path: str = "/v1/messages"

    def headers(self, *, stream: bool) -> Mapping[str, str]:
        """The version is pinned: another one may mean something else by the same words."""
        return {"anthropic-version": messages.VERSION, **_types(stream)}

    def body(self, request: TurnRequest, *, stream: bool) -> bytes:
        """The request's body; raises `PackhostError`."""
        return messages.request_body(request, stream=stream)

    def parse(self, body: bytes, request: TurnRequest, limits: SafetyLimits) -> Reply:
        """A whole reply; raises `TurnFault`."""
        return messages.parse_reply(body, limits)

    def machine(self, request: TurnRequest, limits: SafetyLimits) -> StreamMachine:
        """What a streamed reply is fed to."""
        return MessagesStream(limits, schemas_of(request.tools))


@dataclass(frozen=True, slots=True)
class ChatProtocol:
    """`openai_compatible`, with the two things in which its providers cannot be reconciled."""

    path: str = "/v1/chat/completions"
    echo_reasoning: bool = True
    max_tokens_field: str = "max_tokens"

    def headers(self, *, stream: bool) -> Mapping[str, str]:
        """What is sent and what is taken."""
        return _types(stream)

    def body(self, request: TurnRequest, *, stream: bool) -> bytes:
        """The request's body; raises `PackhostError`."""
        return chat.request_body(
            request,
            stream=stream,
            echo_reasoning=self.echo_reasoning,
            max_tokens_field=self.max_tokens_field,
        )

    def parse(self, body: bytes, request: TurnRequest, limits: SafetyLimits) -> Reply:
        """A whole reply; raises `TurnFault`."""
        return chat.parse_reply(body, schemas_of(request.tools), limits)

    def machine(self, request: TurnRequest, limits: SafetyLimits) -> StreamMachine:
        """What a streamed reply is fed to."""
        return ChatStream(limits, schemas_of(request.tools))


def path_below(base_url: str, path: str) -> str:
    """The path to add to a base URL: `/v1` is left out of it where the base URL has a path of its own.

    `messages_compatible` providers are named without `/v1`, `openai_compatible` ones mostly with it,
    or with another path in its place; both are taken for both.
    """
    own = urlsplit(base_url).path.rstrip("/")
    versioned = own.rpartition("/")[2] == "v1"
    if versioned or (own and path.startswith("/v1/chat/")):
        return path.removeprefix("/v1")
    return path


def _types(stream: bool) -> dict[str, str]:
    accept = "text/event-stream" if stream else "application/json"
    return {"content-type": "application/json", "accept": accept}
