"""Building tools of kind `http` from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from packhost.errors import ManifestInvalid, PackhostError
from packhost.manifest.model import Permission, ToolSpec
from packhost.rules.scopes import NetworkScope, format_scope


def http_tool(
    name: str,
    url: str,
    *,
    description: str,
    input_schema: Mapping[str, Any] | None = None,
    method: Literal["GET", "POST", "PUT", "DELETE"] = "POST",
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    permission: Permission | None = None,
    required_scopes: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    **more: Any,
) -> ToolSpec:
    """A tool of kind `http`, as a manifest would have it.

    What is left out follows from the request: `GET` has the permission `read`, any other method `write`; the
    scopes are the host of a URL that names it, and the secrets that the templates name. `config` takes what
    else the kind knows (`timeout`, `retries`, …), `more` what else a tool has (`title`, `output_schema`, …).

    :raises ManifestInvalid: when the tool could not be loaded; `data["problems"]` has every sentence.
    """
    from packhost.kinds.http_checks import http_problems  # TLS and models, which no handler needs

    settings = {"url": url, "method": method, **(config or {})}
    if headers:
        settings["headers"] = dict(headers)
    if body is not None:
        settings["body"] = body
    fields = {
        "name": name,
        "description": description,
        "kind": "http",
        "permission": permission or ("read" if method == "GET" else "write"),
        "config": settings,
        **({"input_schema": dict(input_schema)} if input_schema is not None else {}),
        **more,
    }
    try:
        spec = ToolSpec.model_validate(fields)
        scopes = _scopes(spec) if required_scopes is None else tuple(required_scopes)
        spec = ToolSpec.model_validate({**fields, "required_scopes": scopes})
    except ValueError as error:
        said = str(error).splitlines()
        raise ManifestInvalid(
            f"`{name[:64]}` is not a tool: {' '.join(said)[:500]}", hint="see the reference of manifests"
        ) from None
    if problems := list(http_problems(spec)):
        raise ManifestInvalid(problems[0], hint="mend it, and build the tool again", problems=problems)
    return spec


def _scopes(spec: ToolSpec) -> tuple[str, ...]:
    """The scopes that the request itself shows; none where it cannot be told."""
    from packhost.kinds.http_config import prepare  # as above

    try:
        ready = prepare(spec)
    except (ValueError, PackhostError):
        return ()
    found = [f"secret {name}" for name in ready.secrets]
    if ready.origin is not None:
        # with its port a scope also opens addresses that are not public: only a URL that names one means that
        usual = ready.origin.secure and ready.origin.port == 443
        scope = NetworkScope(ready.origin.host, None if usual else ready.origin.port)
        found.insert(0, format_scope(scope))
    return tuple(found)
