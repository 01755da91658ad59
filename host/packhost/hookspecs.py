"""What a pack may provide to the host, as pluggy hooks of the project `packhost`.

A pack's package marks its functions with `hookimpl`. Hooks run in the host's process, so only shipped
packs and those that a workspace trusts contribute any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

import pluggy

from packhost.errors import ConfigInvalid
from packhost.kinds.base import Kind
from packhost.kinds.context import RunDriver
from packhost.kinds.providing import Announce, Provider
from packhost.kinds.record import TraceWriter
from packhost.names import nearest
from packhost.workspace.secrets import SecretSource

PROJECT = "packhost"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a pack's implementation of a hook."""


class HookSpecs:
    """The hooks, each called once when the host starts or its packs change."""

    @hookspec
    def packhost_kinds(self) -> Sequence[Kind]:
        """Provide kinds of tools: what runs the tools whose manifest names that kind."""
        return ()

    @hookspec
    def packhost_run_drivers(self) -> Sequence[RunDriver]:
        """Provide drivers of runs: what carries a run from its request to its outcome."""
        return ()

    @hookspec
    def packhost_trace_writers(self) -> Mapping[str, TraceWriter]:
        """Provide what writes a run as a trace, by the name of the run's driver."""
        return {}

    @hookspec
    def packhost_secret_sources(self) -> Mapping[str, SecretSource]:
        """Provide sources of secrets, by the word that stands before the colon of a reference."""
        return {}

    @hookspec(firstresult=True)
    def packhost_provider(self, announce: Announce) -> Provider | None:
        """Provide the pack's resources and prompts; `announce` tells clients of changes."""
        return None


HOOKS = tuple(name for name in vars(HookSpecs) if name.startswith(f"{PROJECT}_"))


def build_plugins(modules: Iterable[ModuleType]) -> pluggy.PluginManager:
    """A new manager with these modules' hooks.

    Raises `ConfigInvalid`, naming the module, for a hook that does not exist or has another signature, and
    for a module given twice.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    for module in modules:
        try:
            manager.register(module, module.__name__)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise _not_a_hook(module, error) from None
        except ValueError:
            raise ConfigInvalid(f"the package `{module.__name__}` is given twice as a pack") from None
    return manager


def _not_a_hook(module: ModuleType, error: pluggy.PluginValidationError) -> ConfigInvalid:
    said = str(error).strip().splitlines()
    unknown = next(
        (name for name in vars(module) if name.startswith(f"{PROJECT}_") and name not in HOOKS), ""
    )
    if unknown:
        near = nearest(unknown, HOOKS, 1)
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else "the hooks are " + ", ".join(f"`{one}`" for one in HOOKS)
        )
        return ConfigInvalid(f"`{module.__name__}` provides `{unknown}`, which is not a hook", hint=hint)
    return ConfigInvalid(f"`{module.__name__}` has a hook that does not fit: {said[-1] if said else ''}")
