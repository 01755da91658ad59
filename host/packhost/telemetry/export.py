"""Traces and metrics on their way to a collector by OTLP over HTTP."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from packhost.store.base import Store
from packhost.telemetry.calls import CallObserver, Origins
from packhost.telemetry.metrics import Instruments
from packhost.telemetry.turns import TurnSink
from packhost.workspace.settings import TelemetrySettings

SCOPE: Final = "packhost"
_AT_THE_END: Final = 2_000
"""Milliseconds that a host waits at its end for what is still to be sent."""


class Telemetry:
    """What a host that is watched has: an observer for its gate, and a sink for its record."""

    def __init__(
        self,
        settings: TelemetrySettings,
        environ: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        store: Store,
        owner: str,
        version: str,
        spans: SpanProcessor | None = None,
        reader: MetricReader | None = None,
    ) -> None:
        """`spans` and `reader` stand in for the exporters over HTTP."""
        resource = Resource.create(
            {
                "service.name": environ.get("OTEL_SERVICE_NAME") or "packhost",
                "service.version": version,
                "service.instance.id": owner,
                "host.name": platform.node(),
                "process.pid": os.getpid(),
            }
        )
        base = settings.endpoint
        self._tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        if settings.traces:
            address = f"{base}/v1/traces" if base is not None else None
            exporter = OTLPSpanExporter(endpoint=address, headers=dict(headers) or None)
            self._tracing.add_span_processor(spans or BatchSpanProcessor(exporter))
        readers: list[MetricReader] = [reader] if reader is not None else []
        if settings.metrics and not readers:
            address = f"{base}/v1/metrics" if base is not None else None
            readers = [
                PeriodicExportingMetricReader(
                    OTLPMetricExporter(endpoint=address, headers=dict(headers) or None)
                )
            ]
        self._metering = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        tracer = self._tracing.get_tracer(SCOPE, version)
        origins = Origins()
        self.instruments = Instruments(self._metering.get_meter(SCOPE, version), store)
        self.observer = CallObserver(tracer, self.instruments, origins)
        self.sink = TurnSink(tracer, self.instruments, origins, store, owner)

    def announce(self) -> None:
        """Let libraries that speak OpenTelemetry, such as the MCP SDK, send their spans along."""
        trace.set_tracer_provider(self._tracing)
        metrics.set_meter_provider(self._metering)

    def close(self) -> None:
        """Send what is left, and stop."""
        self._tracing.force_flush(_AT_THE_END)
        self._tracing.shutdown()
        self._metering.shutdown(_AT_THE_END)
