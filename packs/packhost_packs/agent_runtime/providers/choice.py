"""The provider that a profile names."""

from __future__ import annotations

from packhost.api import PackhostError, RunHandle
from packhost_packs.agent_runtime.limits import seconds
from packhost_packs.agent_runtime.profiles import Chosen
from packhost_packs.agent_runtime.providers.base import Provider
from packhost_packs.agent_runtime.providers.http import MessagesProvider
from packhost_packs.agent_runtime.providers.messages import KEY_HEADER
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider

TIMEOUT = 120.0


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
    connection = run.connect(profile["base_url"], secret=profile.get("api_key"), header=KEY_HEADER)
    return MessagesProvider(connection, seconds(profile.get("timeout", TIMEOUT)))
