"""The numbers that a host gives of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from packhost.errors import PackhostError
from packhost.store.base import Reading, Store

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_WAITS: Final = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 86_400.0)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)


class Instruments:
    """Histograms and counters, and what is read from the store whenever somebody collects."""

    def __init__(self, meter: Meter, store: Store) -> None:
        self._store = store
        histogram = meter.create_histogram
        self._calls = histogram(
            "packhost.tool.call.duration",
            unit="s",
            description="How long governed calls took, waiting for people included.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._decisions = meter.create_counter(
            "packhost.decisions",
            unit="{call}",
            description="What the rules said of calls, and how they ended.",
        )
        self._waits = histogram(
            "packhost.approval.wait",
            unit="s",
            description="How long calls waited for a person.",
            explicit_bucket_boundaries_advisory=_WAITS,
        )
        self._answers = histogram(
            "packhost.approval.decision.duration",
            unit="s",
            description="From a question to its decision.",
            explicit_bucket_boundaries_advisory=_WAITS,
        )
        self._commits = histogram(
            "packhost.store.commit.duration",
            unit="s",
            description="How long transactions of the writer took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._batches = histogram(
            "packhost.store.batch.size",
            unit="{op}",
            description="How many operations one transaction held.",
            explicit_bucket_boundaries_advisory=_COUNTS,
        )
        self._tokens = histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that model providers counted.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._turns = histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long model providers took for a turn.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        meter.create_observable_gauge(
            "packhost.approvals.pending",
            [self._observed(_pending)],
            unit="{approval}",
            description="Questions that wait for a person.",
        )
        meter.create_observable_gauge(
            "packhost.runs", [self._observed(_runs)], unit="{run}", description="Runs by their status."
        )

    def call(self, tool: str, verdict: str, code: str, seconds: float, waited: float) -> None:
        """A call has ended; `code` is empty when it went well."""
        named = {"gen_ai.tool.name": tool, **({"error.type": code} if code else {})}
        self._calls.record(seconds, named)
        self._decisions.add(1, {"packhost.decision": verdict, "packhost.code": code or "ok"})
        if waited:
            self._waits.record(waited, {"gen_ai.tool.name": tool})

    def decision(self, tool: str, status: str, channel: str, seconds: float) -> None:
        """A person has decided."""
        named = {"gen_ai.tool.name": tool, "packhost.approval.status": status, "packhost.channel": channel}
        self._answers.record(max(0.0, seconds), named)

    def commit(self, count: int, seconds: float) -> None:
        """The writer has committed a batch; called from its thread."""
        self._commits.record(seconds)
        self._batches.record(count)

    def turn(self, model: str, seconds: float, usage: Mapping[str, int], error: str = "") -> None:
        """A model has replied, or failed to."""
        named = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        self._turns.record(seconds, {**named, **({"error.type": error} if error else {})})
        for kind in ("input", "output"):
            count = usage.get(f"{kind}_tokens")
            if count is not None:
                self._tokens.record(count, {**named, "gen_ai.token.type": kind})

    def _observed(
        self, look: Callable[[Reading], list[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            try:
                with self._store.snapshot() as view:
                    return look(view)
            except PackhostError:
                return []

        return read


def _pending(view: Reading) -> list[Observation]:
    row = view.execute(
        "SELECT COUNT(*) FROM approvals WHERE status='pending' AND expires_at>?", (view.now(),)
    )
    return [Observation(row.fetchone()[0])]


def _runs(view: Reading) -> list[Observation]:
    rows = view.execute("SELECT status, COUNT(*) FROM executions WHERE kind<>'call' GROUP BY status")
    return [Observation(count, {"packhost.run.status": status}) for status, count in rows.fetchall()]
