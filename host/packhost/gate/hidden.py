"""Hidden parameters: arguments that the host fills, and that no agent sees or sends.

What fills one, the first that there is:

1. `_tenant` and `_endUser`: the tenant that the caller's token names, else the workspace's, and the caller's
   principal, whatever a run says.
2. The accepted `variables` of packhost.yaml, so that no run can change what a person set.
3. The `variables` that the run was started with, and before its own those of the run that started it.

Within the last two a name without leading `_` is looked for among the variables, then in `_record.metadata`,
then in each other variable that is an object and has no leading `_`; it stays visible, and is the agent's to
give, where nothing is found. One with a leading `_` is a variable itself or the call is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from packhost.gate.types import Refusal

TENANT: Final = "_tenant"
END_USER: Final = "_endUser"
_NOTHING: Final = object()


def found(name: str, variables: Mapping[str, Any]) -> Any:
    """The value that one set of variables has for a name, or a mark that it has none."""
    if name in variables:
        return variables[name]
    if name.startswith("_"):
        return _NOTHING
    record = variables.get("_record")
    metadata = record.get("metadata") if isinstance(record, Mapping) else None
    if isinstance(metadata, Mapping) and name in metadata:
        return metadata[name]
    for other, value in variables.items():
        if not other.startswith("_") and isinstance(value, Mapping) and name in value:
            return value[name]
    return _NOTHING


def filled_by(names: Collection[str], variables: Mapping[str, Any]) -> frozenset[str]:
    """Which of a tool's hidden parameters are the host's to fill, given one set of variables."""
    if not names:
        return frozenset()
    return frozenset(name for name in names if name.startswith("_") or found(name, variables) is not _NOTHING)


def below(own: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a run that another run started: whatever the one above finds, it finds there too."""

    def shadows(name: str, value: Any) -> bool:
        members = value if isinstance(value, Mapping) else ()
        return name == "_record" or any(found(one, above) is not _NOTHING for one in (name, *members))

    return {**above, **{name: value for name, value in own.items() if not shadows(name, value)}}


def fill(
    names: Collection[str],
    arguments: dict[str, Any],
    variables: Mapping[str, Any],
    principal: str,
    of_run: Mapping[str, Any] | None = None,
    tenant: str | None = None,
) -> Refusal | None:
    """Put the hidden parameters into the arguments, over anything that was sent for them."""
    of_caller = {END_USER: {"id": principal}} | ({} if tenant is None else {TENANT: {"id": tenant}})
    for name in names:
        value = of_caller[name] if name in of_caller else found(name, variables)
        if value is _NOTHING and name != TENANT and of_run:
            value = found(name, of_run)
        if value is not _NOTHING:
            arguments[name] = value
        elif name.startswith("_"):
            return Refusal(
                "CONFIG_INVALID",
                f"`{name}`, which the host fills, is not set",
                "set it in `variables` of packhost.yaml, or in the `variables` that the run is started with",
            )
    return None
