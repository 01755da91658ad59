"""A provider's own words about an error, and what may be done about it.

The words are shown on one line, shortened, and never acted on, but for one case: a provider says
only in words that it takes fewer tools than it was offered.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost_packs.agent_runtime.faults import TurnFault

MAX_BODY = 64 * 1024
"""Bytes of an error's body that are read."""

_MAX_WAIT = 86400.0
_STATUS_OF = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
}
_TOO_MANY_TOOLS = re.compile(
    r"(?:too many|at most|maximum|max|limit|exceeds?|up to|no more than).{0,60}\b(?:tools|functions)\b"
    r"|\b(?:tools|functions)\b.{0,60}(?:too many|too long|at most|maximum|limit|exceeds?|no more than)",
    re.IGNORECASE,
)


def status_fault(status: int, headers: Mapping[str, str], body: bytes) -> TurnFault:
    """The fault for a status that is not 200: nothing was spent on the request."""
    words, _ = _said(_loaded(body))
    told = f"the provider answered with status {status}" + (f": {words}" if words else "")
    refused = status in (400, 413, 422) and _TOO_MANY_TOOLS.search(words) is not None
    issue = "TOOL_COUNT_REFUSED_BY_PROVIDER" if refused else "PROVIDER_ERROR_EVENT"
    return TurnFault(
        "provider_error", issue, told, status=status, retry_after=retry_after(headers), begun=False
    )


def error_fault(data: str | bytes | Mapping[str, Any], *, begun: bool) -> TurnFault:
    """The fault for an error that came after a 200; `status` is what the error itself stands for.

    One that stands for none is taken to have spent something, so that it is not repeated.
    """
    words, status = _said(data if isinstance(data, Mapping) else _loaded(data))
    told = "the provider reported an error in its reply" + (f": {words}" if words else "")
    return TurnFault(
        "provider_error", "PROVIDER_ERROR_EVENT", told, status=status, begun=begun or status is None
    )


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a provider asks to wait, of its `retry-after-ms` or `retry-after`; a day at most."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", value, re.ASCII):
            return min(float(value) * unit, _MAX_WAIT)
    try:
        date = parsedate_to_datetime(headers["retry-after"])
        seconds = date.timestamp() - (time.time() if now is None else now)
    except (KeyError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_WAIT)


def _loaded(body: str | bytes) -> object:
    try:
        return strict_json.loads(body, "the provider's error")
    except TurnFault:
        return None


def _said(reply: object) -> tuple[str, int | None]:
    """The error's message on one printable line, and the status that it names or stands for."""
    error = reply.get("error", reply) if isinstance(reply, Mapping) else reply
    if isinstance(error, str):
        return _line(error), None
    if not isinstance(error, Mapping):
        return "", None
    message = error.get("message")
    status = next((_status(error.get(name)) for name in ("code", "status") if _status(error.get(name))), None)
    kinds = [error.get("type"), error.get("code")]
    known = next((_STATUS_OF[one] for one in kinds if isinstance(one, str) and one in _STATUS_OF), None)
    return _line(message) if isinstance(message, str) else "", status or known


def _status(value: object) -> int | None:
    return value if type(value) is int and 400 <= value <= 599 else None


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:300]
