"""What a run was started with, as its row keeps it, and its row as it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.errors import InvalidInput
from packhost.executions.answers import checkpoint_of, outstanding_in
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text, covered, display_arguments
from packhost.kinds.context import RunView
from packhost.rules.scopes import Layer, format_scope, parse_scope
from packhost.store.rows import ExecutionRow


@dataclass(frozen=True, slots=True)
class Request:
    """A driver's own request, and what the host keeps beside it to hold a resumed run to the same."""

    spec: Mapping[str, Any]
    background: bool = False
    narrowing: tuple[Layer, ...] = ()
    secrets: bool = True
    """Whether tools that its calls bring may be given secrets."""
    end_user: bool = False
    """Whether an end user asked for it."""
    tenant: str | None = None
    """Whom it goes for, where a token said so."""

    def as_text(self) -> str:
        """The request as JSON text."""
        layers = [
            {"name": layer.name, "scopes": [format_scope(scope) for scope in layer.scopes]}
            for layer in self.narrowing
        ]
        more: dict[str, Any] = {} if self.secrets else {"secrets": False}
        more |= {"end_user": True} if self.end_user else {}
        more |= {} if self.tenant is None else {"tenant": self.tenant}
        return as_text({"spec": self.spec, "background": self.background, "narrowing": layers, **more})


def request_of(row: ExecutionRow) -> Request:
    """What a run was started with."""
    raw = json.loads(row.spec_json)
    secrets, end_user = raw.get("secrets", True), raw.get("end_user", False)
    layers = _layers(raw["narrowing"])
    return Request(raw["spec"], raw["background"], layers, secrets, end_user, raw.get("tenant"))


def shown(row: ExecutionRow) -> dict[str, Any]:
    """A run's request as it is shown: of what fills hidden parameters the names alone.

    The row itself keeps the values, since a run that goes on needs them.
    """
    request: dict[str, Any] = json.loads(row.spec_json)
    spec = request.get("spec")
    if isinstance(spec, dict):
        if "variables" in spec:
            spec["variables"] = covered(spec["variables"])
        given, unseen = spec.get("input"), spec.get("unseen_input")
        if isinstance(given, dict) and unseen:
            spec["input"] = display_arguments(given, unseen)
    return request


def _layers(raw: Sequence[Mapping[str, Any]]) -> tuple[Layer, ...]:
    return tuple(Layer(one["name"], tuple(map(parse_scope, one["scopes"]))) for one in raw)


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value with every string in it redacted; its shape stays as it is."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redacted(one, redact) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one, redact) for one in value]
    return value


def answers_of(
    outputs: Mapping[str, Mapping[str, Any]], configuration: Configuration
) -> dict[str, dict[str, Any]]:
    """What came of calls, `{result, is_error?}` each, as the text that a model reads; secrets redacted.

    Raises `InvalidInput` for one that is larger than any tool's result may be.
    """
    answers: dict[str, dict[str, Any]] = {}
    limit = configuration.limits.max_result_bytes
    for identity, output in outputs.items():
        result = redacted(output.get("result"), configuration.redact)
        text = result if isinstance(result, str) else as_text(result)
        if len(text.encode("utf-8", "surrogatepass")) > limit:
            raise InvalidInput(
                f"the output of call `{identity[:100]}` is larger than {limit} bytes",
                path=f"/tool_outputs/{identity[:100]}",
                hint="send less of it; no output was taken",
            )
        answers[identity] = {"text": text, "is_error": bool(output.get("is_error"))}
    return answers


def view_of(row: ExecutionRow) -> RunView:
    """A run as it is shown; one that was ended while nobody held it has the outcome `cancelled`."""
    still = row.status in ("paused", "interrupted")
    return RunView(
        id=row.id,
        kind=row.kind,
        session_id=row.session_id,
        status=row.status,
        outcome="cancelled" if row.outcome == "aborted" else row.outcome,
        waiting_on=row.waiting_on,
        result=None if row.result_json is None else json.loads(row.result_json),
        reason=row.reason,
        principal=row.principal,
        client=row.client,
        created_at=row.created_at,
        updated_at=row.updated_at,
        background=bool(json.loads(row.spec_json).get("background")),
        checkpoint=checkpoint_of(row.state_json) if still else None,
        awaits=outstanding_in(row.state_json) if still else (),
    )
