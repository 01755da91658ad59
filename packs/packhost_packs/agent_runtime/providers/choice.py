"""The provider that a profile names."""

from __future__ import annotations

from packhost.api import PackhostError, RunHandle
from packhost_packs.agent_runtime.limits import seconds
from packhost_packs.agent_runtime.profiles import Chosen
from packhost_packs.agent_runtime.providers import chat, messages
from packhost_packs.agent_runtime.providers.base import Provider
from packhost_packs.agent_runtime.providers.http import DRAIN, TIMEOUT, HttpProvider
from packhost_packs.agent_runtime.providers.protocols import (
    ChatProtocol,
    MessagesProtocol,
    WireProtocol,
    path_below,
)
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider


def provider_for(chosen: Chosen, run: RunHandle) -> Provider:
    """A provider for this run.

    Raises `PackhostError` with `MODEL_NOT_CONFIGURED` for a profile that is not whole, or what
    `RunHandle.connect` raises.
    """
    if chosen.provider == "scripted":
        return ScriptedProvider(run.spec["script"])
    profile = chosen.profile
    missing = [name for name in ("base_url", "model") if not profile.get(name)]
    if missing:
        raise PackhostError(
            f"the model profile `{chosen.name}` has no `{missing[0]}`",
            code="MODEL_NOT_CONFIGURED",
            hint=f"add `{missing[0]}` to it in packhost.yaml",
        )
    chats = chosen.provider == "openai_compatible"
    connection = run.connect(
        profile["base_url"],
        secret=profile.get("api_key"),
        header=chat.KEY_HEADER if chats else messages.KEY_HEADER,
        scheme=chat.KEY_SCHEME if chats else "",
    )
    return HttpProvider(
        connection,
        _protocol(chosen),
        timeout=seconds(profile.get("timeout", TIMEOUT)),
        drain=seconds(profile.get("drain", DRAIN)),
        stream=profile.get("stream", True),
    )


def _protocol(chosen: Chosen) -> WireProtocol:
    profile = chosen.profile
    if chosen.provider == "openai_compatible":
        return ChatProtocol(
            path_below(profile["base_url"], ChatProtocol().path),
            echo_reasoning=profile.get("echo_reasoning", True),
            max_tokens_field=profile.get("max_tokens_field", "max_tokens"),
        )
    return MessagesProtocol(path_below(profile["base_url"], MessagesProtocol().path))
