"""What is wrong with a tool of kind `http`, found when its manifest loads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from packhost.errors import PackhostError
from packhost.kinds.base import Located
from packhost.kinds.egress import check_scopes, header_fault
from packhost.kinds.http_config import HttpConfig, Prepared, origin_of, prepare, properties
from packhost.kinds.templates import (
    HOST_NAMES,
    HOST_ROOTS,
    Placeholder,
    TemplateFault,
    Text,
    Values,
    fill_text,
    json_placeholders,
    placeholders,
)
from packhost.manifest.model import ToolSpec
from packhost.names import nearest
from packhost.rules.scopes import Layer, SecretScope, parse_scope

_MOST_HOSTS: Final = 64
_KEYS: Final = tuple(HttpConfig.model_fields)
_URL: Final = ("config", "url")
_SPACED: Final = re.compile(r"\{\{\s*(secret\s*:\s*)?([A-Za-z_][A-Za-z0-9_-]*)[A-Za-z0-9_.-]*\s*\}\}")


def http_problems(spec: ToolSpec) -> Iterator[str]:
    """A sentence, `Located`, for each thing that is wrong with a tool's `config` or its scopes."""
    if spec.target is not None:
        message = "`target` is for kind `python`: `config.url` says where a tool of kind `http` goes"
        yield Located(message, ("target",))
    try:
        ready = prepare(spec)
    except ValidationError as error:
        yield from dict.fromkeys(_said(one) for one in error.errors(include_url=False))
        return
    except TemplateFault as error:
        yield Located(f"`config.url` {error}", _URL)
        return
    except PackhostError as error:
        yield Located(f"`config.url`: {error.message}: {error.hint}", _URL)
        return
    scopes = tuple(parse_scope(line) for line in spec.required_scopes)
    yield from _undeclared(spec, ready)
    yield from _with_blanks(spec, ready)
    yield from _uncovered_hosts(spec, ready, Layer("manifest", scopes))
    for name in ready.secrets:
        if SecretScope(name) not in scopes:
            message = f"`{{{{secret:{name}}}}}` has no scope: add `secret {name}` to `required_scopes`"
            yield Located(message, ("required_scopes",))
    yield from _header_faults(ready)
    if ready.config.method == "GET" and ready.body is not None:
        message = "`config.body` cannot go with `GET`: take it out, or name another `method`"
        yield Located(message, ("config", "body"))
    if ready.config.retries and not spec.idempotent:
        message = "`config.retries` is for idempotent tools: take it out, or say `idempotent: true` if it is"
        yield Located(message, ("config", "retries"))
    if ready.config.timeout is not None and ready.config.timeout > spec.timeout:
        message = "`config.timeout` bounds one attempt and cannot be longer than the tool's `timeout`"
        yield Located(message, ("config", "timeout"))


def _said(error: Mapping[str, Any]) -> Located:
    location = error["loc"]
    inner = location[:-1] if error["type"] == "missing" else location
    return Located(_sentence(error), ("config", *inner))


def _sentence(error: Mapping[str, Any]) -> str:
    location, kind = error["loc"], error["type"]
    where = "`config." + ".".join(str(step) for step in location if isinstance(step, str | int)) + "`"
    if kind == "missing":
        return f"{where} is missing"
    if kind == "extra_forbidden":
        near = nearest(str(location[-1]), _KEYS, 1)
        known = (
            f"did you mean `{near[0]}`?" if near else f"known are {', '.join(f'`{key}`' for key in _KEYS)}"
        )
        return f"`config` of kind `http` has no `{location[-1]}`: {known}"
    if kind == "packhost":
        return f"{where}: {error['ctx']['message']}: {error['ctx']['hint']}"
    if kind == "literal_error":
        return f"{where} cannot be `{str(error['input'])[:40]}`: write one of {error['ctx']['expected']}"
    said = str(error["msg"]).rstrip(".")
    return f"{where}: {said[:1].lower()}{said[1:]}"


def _with_blanks(spec: ToolSpec, ready: Prepared) -> Iterator[str]:
    """What is written as other templates are, with blanks inside the braces: it would be sent as text."""
    known = properties(spec)
    for place, value in (("headers", ready.config.headers), ("body", ready.config.body)):
        for text in _strings(value):
            for found in _SPACED.finditer(text):
                secret, name = found.groups()
                if found[0] != "".join(found[0].split()) and (secret or name in known):
                    meant = "".join(found[0].split())
                    yield Located(
                        f"`{found[0]}` in `config.{place}` is text: write `{meant}`", ("config", place)
                    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for entry in value:
            yield from _strings(entry)


def _undeclared(spec: ToolSpec, ready: Prepared) -> Iterator[str]:
    """Placeholders that can never be filled and are hardly meant as text."""
    known = properties(spec)
    for text, place, strict in _texts(ready):
        where = ".".join(place)
        for one in text:
            if one.secret or one.full in HOST_NAMES or one.name in known:
                continue
            near = nearest(one.name, known, 1)
            # In a body other templates may stand for whoever gets it; what the host keeps is sent as text.
            if (strict and not one.name.startswith("_")) or near:
                hint = f"did you mean `{{{{{near[0]}}}}}`?" if near else "declare it in `input_schema`"
                yield Located(f"`{one.written}` in `{where}` is no argument: {hint}", place)


def _texts(ready: Prepared) -> Iterator[tuple[list[Placeholder], tuple[str, ...], bool]]:
    yield [*placeholders(ready.url.authority), *ready.url.placeholders()], _URL, True
    written = {name.lower(): name for name in ready.config.headers}
    for name, text in ready.headers:
        yield list(placeholders(text)), ("config", "headers", written.get(name, name)), True
    if ready.body is not None:
        yield list(json_placeholders(ready.body)), ("config", "body"), False


def _uncovered_hosts(spec: ToolSpec, ready: Prepared, layer: Layer) -> Iterator[str]:
    choices: list[list[tuple[str, str]]] = []
    for one in placeholders(ready.url.authority):
        values = _choices(spec, one)
        if not values:
            message = (
                f"`{one.written}` in `config.url` would choose the host: only an argument with an `enum` may"
            )
            yield Located(message, _URL)
            return
        choices.append([(one.name, value) for value in values])
    combined = list(itertools.islice(itertools.product(*choices), _MOST_HOSTS + 1))
    if len(combined) > _MOST_HOSTS:
        yield Located(f"`config.url` has more than {_MOST_HOSTS} hosts: make several tools", _URL)
        return
    for chosen in dict.fromkeys(combined):
        yield from _uncovered(ready, ready.url.authority, dict(chosen), layer)


def _uncovered(ready: Prepared, authority: Text, values: Mapping[str, str], layer: Layer) -> Iterator[str]:
    try:
        check_scopes(origin_of(ready.url, fill_text(authority, Values(values))), (layer,))
    except PackhostError as error:
        yield Located(f"`config.url`: {error.message} ({error.hint})", _URL)


def _choices(spec: ToolSpec, one: Placeholder) -> list[str]:
    if one.secret or one.path or one.name in HOST_ROOTS:
        return []
    schema = properties(spec).get(one.name, {})
    found = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return list(found) if isinstance(found, list) and all(isinstance(value, str) for value in found) else []


def _header_faults(ready: Prepared) -> Iterator[str]:
    seen: set[str] = set()
    for name in ready.config.headers:
        if name.lower() in seen:
            yield Located(
                f"the header `{name}` stands twice in `config.headers`", ("config", "headers", name)
            )
        seen.add(name.lower())
    for name, text in ready.headers:
        fixed = "".join(part for part in text if isinstance(part, str))
        if (fault := header_fault(name, fixed)) is not None:
            message = f"the header `{name[:40]}` {fault}: take it out of `config.headers`"
            yield Located(message, ("config", "headers"))
    if ready.body is not None:
        content_type = "".join(map(str, dict(ready.headers)["content-type"])).lower()
        media = content_type.partition(";")[0].strip()
        if media != "application/json" and not media.endswith("+json"):
            message = "`config.body` is JSON, and the header `content-type` says something else: leave it out"
            yield Located(message, ("config", "headers"))
