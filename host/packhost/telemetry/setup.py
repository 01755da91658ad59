"""From settings and environment to traces and metrics on their way to a collector.

The endpoint in the accepted `packhost.yaml` goes before the standard variables, `OTEL_EXPORTER_OTLP_ENDPOINT`
and its like; with neither nothing of OpenTelemetry is imported here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from packhost.errors import ConfigInvalid
from packhost.store.base import Store
from packhost.workspace.settings import TelemetrySettings

if TYPE_CHECKING:
    from packhost.telemetry.export import Telemetry

log = logging.getLogger("packhost.telemetry")
_VARIABLES: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))


def wanted(settings: TelemetrySettings, environ: Mapping[str, str]) -> bool:
    """Whether anybody asked for telemetry."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return settings.endpoint is not None or any(environ.get(name) for name in _VARIABLES)


def open_telemetry(
    settings: TelemetrySettings,
    environ: Mapping[str, str],
    *,
    store: Store,
    owner: str,
    version: str,
    secret: Callable[[str], str],
) -> Telemetry | None:
    """Begin to send, where that is wanted.

    Raises `ConfigInvalid` when `packhost.yaml` names an endpoint and the extra `otel` is not installed; where
    only the environment does, a warning is logged instead, since it may be meant for other programs.
    """
    if not wanted(settings, environ):
        return None
    try:
        from packhost.telemetry.export import Telemetry  # heavy, and an extra
    except ImportError as error:
        hint = "install it: python3 -m pip install 'packhost[otel]'"
        if settings.endpoint is not None:
            raise ConfigInvalid("`telemetry` needs packhost's extra `otel`", hint=hint) from error
        log.warning("OTEL variables are set, and packhost's extra `otel` is not there: %s", hint)
        return None
    headers = {name: secret(value) for name, value in settings.headers.items()}
    return Telemetry(settings, environ, headers, store=store, owner=owner, version=version)
