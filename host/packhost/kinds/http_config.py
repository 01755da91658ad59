"""What a tool of kind `http` declares, and its templates made ready for calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from packhost.errors import InvalidInput
from packhost.kinds.egress import LARGEST, Target, taken_apart
from packhost.kinds.templates import (
    Json,
    Placeholder,
    Text,
    UrlTemplate,
    Values,
    as_json,
    fill_header,
    fill_json,
    fill_text,
    json_placeholders,
    parse_json,
    parse_text,
    parse_url,
    placeholders,
)
from packhost.manifest.model import ToolSpec
from packhost.manifest.values import Duration, Flag, Size

RETRIES: Final = 2
"""How often a call of an idempotent tool is repeated when `retries` is left out."""
IDENTITY: Final = "_identity.token"
_HOST: Final = re.compile(r"[A-Za-z0-9.\-\[\]:]+\Z")


class HttpConfig(BaseModel):
    """The `config` of a tool of kind `http`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(min_length=1, max_length=8192)] = Field(
        description="Where to, as a template: `https://HOST[:PORT]/PATH?QUERY`. Only an argument with an "
        "`enum` may choose the host."
    )
    method: Literal["GET", "POST", "PUT", "DELETE"] = Field(
        default="POST", description="`GET`, `POST`, `PUT` or `DELETE`."
    )
    headers: dict[str, str] = Field(default_factory=dict, description="Headers; their values are templates.")
    body: Any = Field(
        default=None,
        description="A JSON template; a string that is one placeholder becomes the value itself.",
    )
    timeout: Duration | None = Field(
        default=None,
        description="How long one attempt may take, redirects and the whole body included. The tool's own "
        "`timeout` bounds them all.",
    )
    max_response_bytes: Size = Field(
        default=4 * 1024**2, le=LARGEST, description="Largest body, once unpacked; at most `8MiB`."
    )
    response: Literal["auto", "json", "text"] = Field(
        default="auto", description="What the body is read as; `auto` goes by its content type."
    )
    follow_redirects: Flag = Field(
        default=True, description="Whether redirects within the scopes are followed."
    )
    retries: Annotated[StrictInt, Field(ge=0, le=5)] | None = Field(
        default=None,
        description="How often a call that failed in passing is made again, of idempotent tools alone. "
        f"Left out: {RETRIES} for those.",
    )
    elicit: Any = Field(
        default=None, description="What a person is asked for before each call; see docs/kinds/elicit.md."
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """A request with its values put in."""

    target: Target
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tool's templates, parsed once; `origin` is where all calls go, unless an argument chooses it."""

    config: HttpConfig
    url: UrlTemplate
    headers: tuple[tuple[str, Text], ...]
    body: Json | None
    origin: Target | None
    defaults: Mapping[str, Any]
    declared: frozenset[str]
    secrets: tuple[str, ...]
    retries: int

    @property
    def needs_identity(self) -> bool:
        """Whether a call carries an identity assertion."""
        return any(one.full == IDENTITY for one in self.placeholders())

    def placeholders(self) -> Iterator[Placeholder]:
        """Every placeholder there is."""
        yield from placeholders(self.url.authority)
        yield from self.url.placeholders()
        for _, text in self.headers:
            yield from placeholders(text)
        if self.body is not None:
            yield from json_placeholders(self.body)

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with defaults for those that were left out.

        One with a leading `_` that is not declared is none: it could pass for what only the host says.
        """
        sent = {
            name: value
            for name, value in arguments.items()
            if not name.startswith("_") or name in self.declared
        }
        return {**self.defaults, **sent}

    def target(self, values: Values) -> Target:
        """Where a call goes, without its path."""
        return self.origin or origin_of(self.url, fill_text(self.url.authority, values))

    def fill(self, values: Values) -> Filled:
        """The request with the values put in.

        :raises InvalidInput: for a value that does not fit where it stands.
        """
        origin = self.target(values)
        target = Target(origin.secure, origin.host, origin.port, self.url.path(values))
        headers = {name: fill_header(name, text, values) for name, text in self.headers}
        body = b"" if self.body is None else as_json(fill_json(self.body, values)).encode()
        if len(body) > LARGEST:
            raise InvalidInput(f"the request would have more than {LARGEST} bytes", hint="send less at once")
        return Filled(target, headers, body)

    def shown(self, arguments: Mapping[str, Any]) -> str:
        """The request as a person reads it before it is sent: secrets and what the host adds by name."""
        filled = self.fill(Values(self.given(arguments)))
        url = filled.target.url
        for one in self.placeholders():
            url = url.replace(quote(one.written, safe=""), one.written)
        lines = [
            f"{self.config.method} {url}",
            *(f"{name}: {value}" for name, value in filled.headers.items()),
        ]
        return "\n".join([*lines, *(["", filled.body.decode()] if filled.body else [])])


def prepare(spec: ToolSpec) -> Prepared:
    """A tool's templates.

    :raises ValueError: when its `config` is none, as `TemplateFault` or `ValidationError`.
    :raises InvalidInput: when its URL names no host.
    """
    config = HttpConfig.model_validate(spec.config)
    url = parse_url(config.url)
    headers = {name.lower(): parse_text(value) for name, value in config.headers.items()}
    body = None if config.body is None else parse_json(config.body)
    if body is not None:
        headers.setdefault("content-type", ("application/json",))
    fixed = all(isinstance(part, str) for part in url.authority)
    retries = config.retries
    if retries is None:
        retries = RETRIES if spec.idempotent else 0
    ready = Prepared(
        config=config,
        url=url,
        headers=tuple(headers.items()),
        body=body,
        origin=origin_of(url, "".join(map(str, url.authority))) if fixed else None,
        defaults=_defaults(spec),
        declared=frozenset((*properties(spec), *spec.hidden_parameters)),
        secrets=(),
        retries=retries,
    )
    names = dict.fromkeys(one.name for one in ready.placeholders() if one.secret)
    return replace(ready, secrets=tuple(names))


def origin_of(url: UrlTemplate, authority: str) -> Target:
    """The host and port that an authority names. Raises `InvalidInput` when it names none."""
    if not _HOST.match(authority):
        raise InvalidInput(f"`{authority[:100]}` is no host", hint="write `HOST` or `HOST:PORT`")
    return taken_apart(f"{'https' if url.secure else 'http'}://{authority}/")


def _defaults(spec: ToolSpec) -> dict[str, Any]:
    return {name: one["default"] for name, one in properties(spec).items() if "default" in one}


def properties(spec: ToolSpec) -> dict[str, Mapping[str, Any]]:
    """The declared arguments with their schemas."""
    declared = spec.input_schema.get("properties")
    if not isinstance(declared, dict):
        return {}
    return {name: one if isinstance(one, dict) else {} for name, one in declared.items()}


def describe(spec: ToolSpec) -> str:
    """What a tool sends and where, on one line: method, URL as declared, secrets by name."""
    try:
        ready = prepare(spec)
    except (ValueError, InvalidInput):
        return ""
    secrets = ", ".join(f"`{name}`" for name in ready.secrets)
    identity = "; an identity assertion" if ready.needs_identity else ""
    return (
        f"`{ready.config.method} {ready.config.url}`" + (f"; secrets {secrets}" if secrets else "") + identity
    )
