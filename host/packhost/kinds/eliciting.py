"""What a running call may ask of a person: a form to be filled in, or a link to be followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""How much a line matters to the caller, as MCP names it."""


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question in the middle of a call. It has either a form or a link.

    The message is whoever asks's own word: it is shown, and decides nothing.
    """

    message: str
    schema: Mapping[str, Any] | None = None
    """The fields of the form: a JSON Schema of an object with simple properties."""
    url: str | None = None
    """Where the person is sent; that they agree to go there approves nothing."""
    asks: str | None = None
    """Who asks, where it is not the tool itself: the name of an upstream server."""


@dataclass(frozen=True, slots=True)
class Elicited:
    """What came of a question; `content` is what was filled in, of a form that was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None
