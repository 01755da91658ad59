"""Errors as problem details (RFC 9457), with the code that every other door gives too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Literal, get_args

from starlette.responses import Response

from packhost.errors import Code, PackhostError
from packhost.gate.types import Refusal

HttpCode = Literal[
    "UNAUTHENTICATED",
    "KEYS_UNAVAILABLE",
    "FORBIDDEN",
    "METHOD_NOT_ALLOWED",
    "UNSUPPORTED_MEDIA_TYPE",
    "TOO_LARGE",
    "CURSOR_PRUNED",
    "IDEMPOTENCY_CONFLICT",
    "RUNTIME_AGENT_TRANSIENT_SECRETS_UNSUPPORTED",
    "RUNTIME_FLOW_TRANSIENT_SECRETS_UNSUPPORTED",
    "STOPPING",
    "INTERNAL",
]
"""What only a request over HTTP can meet."""
CODES: Final = (*get_args(Code), *get_args(HttpCode))
MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[dict[Code, int]] = {
    "NOT_FOUND": 404,
    "TOOL_NOT_FOUND": 404,
    "INVALID_INPUT": 400,
    "SCOPE_DENIED": 403,
    "POLICY_DENIED": 403,
    "AUTONOMY_DENIED": 403,
    "APPROVAL_DENIED": 403,
    "APPROVAL_MODE_UNSUPPORTED": 501,
    "APPROVAL_REQUIRED": 409,
    "INPUT_REQUIRED": 409,
    "APPROVAL_EXPIRED": 409,
    "NOT_ACCEPTED": 409,
    "PACK_CHANGED": 409,
    "MODEL_NOT_CONFIGURED": 409,
    "CONFIG_INVALID": 409,
    "MANIFEST_INVALID": 409,
    "CANCELLED": 409,
    "EFFECTS_UNKNOWN": 409,
    "CONTINUATION_IN_PROGRESS": 409,
    "RESUME_STATE_CHANGED": 409,
    "LIMIT_EXCEEDED": 429,
    "TOOL_FAILED": 502,
    "OUTPUT_INVALID": 502,
    "OUTPUT_TOO_LARGE": 502,
    "TOOL_COUNT_REFUSED_BY_PROVIDER": 502,
    "TOOL_INTENT_NOT_COMMITTED": 503,
    "ENFORCEMENT_UNAVAILABLE": 503,
    "STORE_UNAVAILABLE": 503,
    "STORE_NEWER": 503,
    "TOOL_TIMEOUT": 504,
}
_AGAIN: Final = 1
"""Seconds after which what is unavailable may be asked for again."""


class Problem(Exception):
    """A refusal of a request, as its client reads it; `detail` is one sentence, `hint` what to do next."""

    def __init__(
        self,
        status: int,
        code: Code | HttpCode,
        detail: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = more

    def as_json(self, instance: str) -> dict[str, Any]:
        """The members of the document; `instance` is the path that was asked for."""
        return {
            "type": f"urn:packhost:problem:{self.code.lower().replace('_', '-')}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "hint": self.hint,
            **self.more,
        }

    def response(self, instance: str) -> Response:
        """The whole reply."""
        headers = {"Cache-Control": "no-store", **self.headers}
        if self.status in (429, 503):
            headers.setdefault("Retry-After", str(_AGAIN))
        body = json.dumps(self.as_json(instance), separators=(",", ":"))
        return Response(body, self.status, headers, MEDIA_TYPE)


def of_error(error: PackhostError) -> Problem:
    """An error of ours as a problem."""
    more = {name: value for name, value in error.data.items() if name in _SHOWN and value is not None}
    status, headers = _STATUS[error.code], _again(error.data)
    return Problem(status, error.code, error.message, hint=error.hint, headers=headers, **more)


def of_refusal(refusal: Refusal) -> Problem:
    """A call that the gate did not let through, or that failed."""
    shown = refusal.as_json()
    more = {name: value for name, value in shown.items() if name not in ("code", "message", "next", "status")}
    status, headers = _STATUS[refusal.code], _again(refusal.data)
    return Problem(status, refusal.code, refusal.message, hint=refusal.hint, headers=headers, **more)


def _again(data: Mapping[str, Any]) -> dict[str, str]:
    """When to come back, where that is known."""
    wait = data.get("retry_after")
    return {"Retry-After": str(max(1, math.ceil(wait)))} if isinstance(wait, int | float) else {}


_SHOWN: Final = ("path", "run_id", "decided_by", "consumed_by", "epoch", "layer", "patterns")
