"""Model errors as people can use them: a place, a dotted path and the nearest right word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from packhost.errors import Code
from packhost.manifest.problems import Problem
from packhost.manifest.yaml import Document, Path
from packhost.names import nearest

_OF_KEY = "[key]"
"""The last step of a location when the key itself is wrong."""
_EXPECTED = {
    "string_type": ("must be text", "put it in quotes"),
    "bool_type": ("must be `true` or `false`", "write it without quotes"),
    "int_type": ("must be a whole number", ""),
    "int_parsing": ("must be a whole number", ""),
    "float_type": ("must be a number", ""),
    "tuple_type": ("must be a list", "write each entry in a line of its own, after `- `"),
    "list_type": ("must be a list", "write each entry in a line of its own, after `- `"),
    "dict_type": ("must be a mapping", "write `key: value`, a line each"),
    "model_type": ("must be a mapping", "write `key: value`, a line each"),
    "model_attributes_type": ("must be a mapping", "write `key: value`, a line each"),
}
_PATTERNS = {
    r"^[a-z][a-z0-9-]*$": "lower-case letters, digits and `-`, first a letter",
    r"^[a-z][a-z0-9_-]*$": "lower-case letters, digits, `-` and `_`, first a letter",
    r"^[a-z][a-z0-9_]*$": "lower-case letters, digits and `_`, first a letter",
    r"^[a-z][a-z0-9-]*:[a-z][a-z0-9_-]*$": "`<pack>:<name>`",
    r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$": "`module:function`",
}


def explain_errors(
    error: ValidationError,
    document: Document,
    model: type[BaseModel],
    *,
    code: Code,
    pack: str = "",
    prefix: Path = (),
) -> list[Problem]:
    """Each error of `model` once, in the words of the file that `document` was read from.

    `prefix` is the path in the document of the value that was validated.
    """
    found: dict[tuple[Path, str], Problem] = {}
    for one in error.errors(include_url=False, include_input=True):
        if one["type"] == "default_factory_not_called":
            continue
        location = one["loc"]
        of_key = location[-1:] == (_OF_KEY,)
        inner = _in_document(location[:-1] if of_key else location, document, prefix)
        message, hint, at_key = _say(one, inner, model)
        path = prefix + inner
        problem = Problem(code, message, hint, document.place(path, key=at_key or of_key), pack, dotted(path))
        found.setdefault((path, message), problem)
    return list(found.values())


def dotted(path: Iterable[str | int]) -> str:
    """A path as people read it: `tools.0.kind`."""
    return ".".join(str(step) for step in path)


def choice(word: str, known: Iterable[str], what: str) -> tuple[str, str]:
    """Message and hint for a word that is not one of `known`."""
    words = sorted(known)
    near = nearest(word, words, 1)
    listed = ", ".join(f"`{one}`" for one in words)
    return f"`{word}` is not {what}", f"did you mean `{near[0]}`?" if near else f"write one of {listed}"


def _in_document(location: tuple[int | str, ...], document: Document, prefix: Path) -> Path:
    """`location` without the steps that name a member of a union rather than a place in the file."""
    value: Any = document.data
    for step in prefix:
        value = value[step]
    path: list[str | int] = []
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if isinstance(value, dict) and (step in value or (last and isinstance(step, str))):
            path.append(step)
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path.append(step)
            value = value[step]
    return tuple(path)


def _say(one: Mapping[str, Any], path: Path, model: type[BaseModel]) -> tuple[str, str, bool]:
    kind, context, value = one["type"], one.get("ctx", {}), one["input"]
    where = dotted(path) or "the file"
    last = str(path[-1]) if path else ""
    if kind == "packhost":
        return f"`{where}`: {context['message']}" if path else context["message"], context["hint"], False
    if kind == "missing":
        return f"`{where}` is missing", _article(_outer(path)), False
    if kind == "extra_forbidden":
        known = known_keys(model, path[:-1])
        near = nearest(last, known, 1)
        listed = ", ".join(f"`{key}`" for key in sorted(known))
        hint = f"did you mean `{near[0]}`?" if near else f"known here: {listed}" if known else "take it out"
        return f"`{where}` is not a known key", hint, True
    if kind in ("literal_error", "enum"):
        expected = [part.strip("' ") for part in context["expected"].replace(" or ", ", ").split(",")]
        message, hint = choice(str(value), [word for word in expected if word], "known here")
        return f"`{where}`: {message}", hint, False
    if kind in _EXPECTED:
        said, hint = _EXPECTED[kind]
        return f"`{where}` {said}", hint if kind != "string_type" or _is_number(value) else "", False
    if kind == "string_pattern_mismatch":
        return f"`{where}` cannot be `{value}`", _pattern(context["pattern"]), False
    said = one["msg"].rstrip(".")
    return f"`{where}`: {said[:1].lower()}{said[1:]}", "", False


def _outer(path: Path) -> str:
    return dotted(path[:-1])


def _article(outer: str) -> str:
    return f"add it to `{outer}`" if outer else "add it"


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)


def _pattern(pattern: str) -> str:
    return f"write {_PATTERNS[pattern]}" if pattern in _PATTERNS else f"it must match `{pattern}`"


def known_keys(model: type[BaseModel], path: Path) -> set[str]:
    """The keys that `model` knows at `path`, in any of the forms that a value there may have."""
    schema = model.model_json_schema()
    at = [schema]
    for step in path:
        at = [inner for one in at for inner in _step(_forms(one, schema), step)]
    return {key for one in at for form in _forms(one, schema) for key in form.get("properties", {})}


def _forms(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in schema:
        return _forms(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    forms = [dict(schema)]
    for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        forms += _forms(member, root)
    return forms


def _step(forms: list[dict[str, Any]], step: str | int) -> list[dict[str, Any]]:
    found: list[Any] = []
    for form in forms:
        if isinstance(step, int):
            found.append(form.get("items"))
        else:
            found += [form.get("properties", {}).get(step), form.get("additionalProperties")]
    return [inner for inner in found if isinstance(inner, dict)]
