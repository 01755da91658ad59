"""What a reply is to the caller: a value when it went well, an error with the status when it did not."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, Literal, NoReturn

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.reply import FetchReply

Clean = Callable[[str], str]
"""Takes every secret out of a whole text."""

PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may go better."""
UNSURE: Final = frozenset({502, 504})
"""Statuses by which something on the way says that it got no answer: the request may have had its effect."""
_EXCERPT: Final = 500
_LONGEST_WAIT: Final = 86_400.0
_TEXTS: Final = frozenset(
    f"application/{name}"
    for name in (
        "xml",
        "javascript",
        "x-www-form-urlencoded",
        "yaml",
        "x-yaml",
        "toml",
        "graphql",
        "x-ndjson",
    )
)
_CHARSETS: Final = {"utf-8": "utf-8-sig", "ascii": "utf-8-sig", "iso8859-1": "iso8859-1", "cp1252": "cp1252"}


def value_of(reply: FetchReply, host: str, how: Literal["auto", "json", "text"], clean: Clean) -> Any:
    """A good reply's value: JSON as what it says, text as text, no body as `None`.

    :raises PackhostError: `OUTPUT_INVALID` for a body that is neither, or not what it should be.
    """
    if not reply.body:
        return None
    media, charset = content_type(reply)
    if how == "json" or (how == "auto" and (media == "application/json" or media.endswith("+json"))):
        return _json(clean(_text(reply.body, charset, host)), host)
    if how == "text" or media.startswith("text/") or media.endswith("+xml") or media in _TEXTS:
        return clean(_text(reply.body, charset, host))
    if not media:
        return _guessed(reply.body, host, clean)
    _invalid(f"`{host}` sent `{media}`, which is neither JSON nor text", "only these can be results here")


def is_binary(reply: FetchReply, how: Literal["auto", "json", "text"]) -> bool:
    """Whether a good reply's body is neither JSON nor text, as far as it says."""
    media, _ = content_type(reply)
    if how != "auto" or not reply.body or not media:
        return False
    as_text = media.startswith("text/") or media.endswith(("+xml", "+json")) or media in _TEXTS
    return not as_text and media != "application/json"


def content_type(reply: FetchReply) -> tuple[str, str]:
    """Media type and charset of a reply, in lower case; empty where it says nothing."""
    header = Message()
    header["content-type"] = reply.headers.get("content-type", "")
    if not header["content-type"].strip():
        return "", ""
    return header.get_content_type(), str(header.get_content_charset(""))


def _text(body: bytes, charset: str, host: str) -> str:
    try:
        known = _CHARSETS.get(codecs.lookup(charset or "utf-8").name)
    except LookupError:
        known = None
    if known is None:
        _invalid(f"`{host}` sent text in `{charset[:40]}`, which is not read here", "ask it for UTF-8")
    return body.decode(known, "replace")


def _json(text: str, host: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        _invalid(f"`{host}` sent what is not JSON", "set `config.response: text` if it is meant to be text")


def _guessed(body: bytes, host: str, clean: Clean) -> Any:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        _invalid(f"`{host}` sent bytes of no declared type", "only JSON and text can be results here")
    text = clean(text)
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _invalid(message: str, hint: str) -> NoReturn:
    raise PackhostError(message, code="OUTPUT_INVALID", hint=f"{hint}; the call itself ran")


def failure_of(reply: FetchReply, host: str, *, unsure: bool, quote: bool, clean: Clean) -> PackhostError:
    """A reply that says that it went wrong, as an error with its status.

    With `quote` the beginning of the body is told. With `unsure` it says what a gateway's word leaves open.
    """
    status = f"{reply.status} {_phrase(reply.status)}".strip()
    said = f": {found}" if quote and (found := _excerpt(reply, clean)) else ""
    message = f"`{host}` answered {status}{said}"
    if unsure and reply.status in UNSURE:
        hint = "whether it had effects is unknown: look before you call it again"
        return PackhostError(message, code="EFFECTS_UNKNOWN", hint=hint, status=reply.status)
    return ToolFailed(message, hint=_advice(reply), status=reply.status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _excerpt(reply: FetchReply, clean: Clean) -> str:
    media, _ = content_type(reply)
    if not (media.startswith("text/") or media.endswith(("json", "xml")) or not media):
        return ""
    # Cleaned as a whole, then shortened: a secret that is cut in two would not be found.
    flat = " ".join(clean(reply.body.decode("utf-8", "replace")).split())
    return flat if len(flat) <= _EXCERPT else f"{flat[: _EXCERPT - 1]}…"


def _advice(reply: FetchReply) -> str:
    if (wait := retry_after(reply)) is not None:
        return f"call again in {wait:g} s"
    if 300 <= reply.status < 400:
        return "it leads elsewhere, where this request is not sent on: change `config.url` or the method"
    if reply.status in (401, 403):
        return "check the secret and what it may do there"
    return "check the arguments" if reply.status < 500 else "try later, or tell whoever runs it"


def retry_after(reply: FetchReply, *, now: datetime | None = None) -> float | None:
    """Seconds that a reply asks to wait, at most a day; `None` when it says nothing of it."""
    said = reply.headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:10]), _LONGEST_WAIT)
    try:
        then = parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = (then - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_WAIT)
