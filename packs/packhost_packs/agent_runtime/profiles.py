"""Which model a run speaks to: a profile of `packhost.yaml`, named by the call, its agent or the default."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packhost.api import NotFound, PackhostError

LINES = """agent_runtime:
  default_model: main
  models:
    main: {provider: messages_compatible, model: NAME, base_url: "https://HOST", api_key: PROVIDER_KEY, \
max_tokens: 4096}
secrets: {PROVIDER_KEY: env:PROVIDER_KEY}"""
"""What a person adds to `packhost.yaml` so that a model is set up."""

_MAX_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model profile and the saved agent that a run is for, if any."""

    name: str
    profile: Mapping[str, Any]
    agent: Mapping[str, Any]

    @property
    def provider(self) -> str:
        """The word that names the protocol."""
        return str(self.profile["provider"])

    @property
    def max_tokens(self) -> int:
        """The most that one reply may have."""
        return int(self.profile.get("max_tokens", _MAX_TOKENS))


def choose(config: Mapping[str, Any], model_profile: str | None, agent: str | None) -> Chosen:
    """The profile that a call means.

    Raises `NotFound` for an unknown agent, and `PackhostError` with the code `MODEL_NOT_CONFIGURED`
    when there is no such profile, or none at all; its hint holds the lines to add.
    """
    saved = _agent(config, agent)
    models: Mapping[str, Any] = config.get("models") or {}
    name = model_profile or saved.get("model") or config.get("default_model")
    if name is None:
        raise not_configured("no model is set up for `agent-runtime:execute-turn`")
    if name not in models:
        near = difflib.get_close_matches(str(name), list(models), n=3, cutoff=0.5)
        if not near:
            raise not_configured(f"there is no model profile `{name}`")
        listed = ", ".join(f"`{one}`" for one in near)
        raise PackhostError(
            f"there is no model profile `{name}`", code="MODEL_NOT_CONFIGURED", hint=f"did you mean {listed}?"
        )
    profile = models[name]
    return Chosen(str(name), profile, saved)


def not_configured(message: str) -> PackhostError:
    """`MODEL_NOT_CONFIGURED` with the very lines that a person adds to set a model up."""
    return PackhostError(
        message,
        code="MODEL_NOT_CONFIGURED",
        hint=f"a person adds these lines to packhost.yaml:\n{LINES}\nThen they accept it, and you call again",
        lines=LINES,
    )


def _agent(config: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    if name is None:
        return {}
    agents: Mapping[str, Any] = config.get("agents") or {}
    if name in agents:
        saved: Mapping[str, Any] = agents[name]
        return saved
    near = difflib.get_close_matches(name, list(agents), n=3, cutoff=0.5)
    listed = ", ".join(f"`{one}`" for one in near or agents) or "none is saved in packhost.yaml"
    raise NotFound(f"there is no saved agent `{name}`", hint=f"known agents: {listed}")
