"""Conditions on a call's arguments, as rules and grants state them.

In YAML a condition is `DOTTED.PATH: WANTED`: a text with `*` is a glob, any other text, number, boolean
or null an exact value; `{exact: x}`, `{glob: "a*"}`, `{min: 0, max: 100}` say it outright.

A value that is absent does not meet a condition. A value of a kind that the condition cannot be asked of
is an error (`Unanswerable`), which denies: a range of something that is no number, a glob of something
that is no text or that leaves the root (absolute, `..`, NUL), a list where the path goes on.
A glob reads `./a//b/` as `a/b`, so that another spelling of a path does not slip past a rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from packhost.errors import ConfigInvalid, Place
from packhost.names import nearest
from packhost.rules.globs import Glob, canonical, compile_glob, printable

_FORMS = "write a value, a glob, `{exact: VALUE}`, `{glob: GLOB}` or `{min: NUMBER, max: NUMBER}`"
_KEYS = ("exact", "glob", "min", "max")


ABSENT: Final = object()
"""What `read` gives where the arguments hold no value."""


class Unanswerable(Exception):
    """A condition cannot be asked of the value that it met; the text says why, in lower case."""


@dataclass(frozen=True, slots=True)
class ArgumentMatch:
    """One condition; made by `parse_argument_match`.

    `path` is dotted; of `exact`, `glob` and the inclusive `minimum` and `maximum` those count that
    `test` names.

    :raises ConfigInvalid: `test` is `glob` and the glob is not one.
    """

    path: str
    test: Literal["exact", "glob", "range"]
    exact: object = None
    glob: str = ""
    minimum: float | None = None
    maximum: float | None = None
    keys: tuple[str, ...] = field(init=False, repr=False, compare=False)
    compiled: Glob | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.path.split(".")))
        object.__setattr__(self, "compiled", compile_glob(self.glob) if self.test == "glob" else None)

    def holds(self, arguments: Mapping[str, object]) -> bool:
        """Whether the arguments meet the condition.

        :raises Unanswerable: the value is of a kind that the condition cannot be asked of.
        """
        value = read(self.keys, arguments)
        if value is ABSENT:
            return False
        if self.compiled is not None:
            return self.compiled.matches(as_path(self.path, value))
        return _same(self.exact, value) if self.test == "exact" else self._in_range(value)

    def _in_range(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise Unanswerable(f"the argument `{self.path}` is no number, which a range needs")
        return (self.minimum is None or value >= self.minimum) and (
            self.maximum is None or value <= self.maximum
        )


def read(keys: tuple[str, ...], arguments: Mapping[str, object]) -> object:
    """The value at these keys, or `ABSENT`.

    :raises Unanswerable: on the way lies something that is neither an object nor null.
    """
    value: object = arguments
    for key in keys:
        if value is None:
            return ABSENT
        if not isinstance(value, Mapping):
            raise Unanswerable(f"the argument `{'.'.join(keys)}` cannot be read: `{key}` is in no object")
        if key not in value:
            return ABSENT
        value = value[key]
    return value


def as_path(path: str, value: object) -> str:
    """The argument's text as a clean relative path, `""` for the root.

    :raises Unanswerable: it is no text, or one that is absolute or holds `..` or NUL.
    """
    if not isinstance(value, str):
        raise Unanswerable(f"the argument `{path}` is no text, which a glob needs")
    clean = canonical(value)
    if clean is not None:
        return clean
    names = [name for name in value.split("/") if name not in ("", ".")]
    if value.startswith("/") or "\0" in value or ".." in names:
        raise Unanswerable(f"the argument `{path}` does not stay below the root, as a glob needs")
    return "/".join(names)


def _same(wanted: object, value: object) -> bool:
    """Equal as JSON: `true` is not 1, 1 is 1.0."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return wanted.keys() == value.keys() and all(_same(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(_same, wanted, value))
    return wanted == value


def parse_argument_match(path: str, value: object, place: Place | None = None) -> ArgumentMatch:
    """Read one condition of `arguments` in a rule, as YAML gives it.

    :raises ConfigInvalid: it is none; the error carries `place`.
    """
    shown = f"`{printable(path)}`"
    if not path or not all(path.split(".")):
        raise ConfigInvalid(
            f"{shown} names no argument",
            hint="write keys with dots between, such as `options.mode`",
            place=place,
        )
    if isinstance(value, Mapping):
        return _parse_spelled(path, value, shown, place)
    if isinstance(value, str) and "*" in value:
        return _glob_match(path, value, place)
    if value is None or isinstance(value, str | bool | int | float):
        return ArgumentMatch(path, "exact", exact=value)
    raise ConfigInvalid(f"the condition on {shown} is a list", hint=_FORMS, place=place)


def _parse_spelled(
    path: str, value: Mapping[object, object], shown: str, place: Place | None
) -> ArgumentMatch:
    for key in value:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            hint = f"did you mean `{near[0]}`? {_FORMS}" if near else _FORMS
            raise ConfigInvalid(
                f"`{printable(str(key))}` is no part of a condition on {shown}", hint=hint, place=place
            )
    match value:
        case {"exact": exact} if len(value) == 1:
            return ArgumentMatch(path, "exact", exact=exact)
        case {"glob": str(glob)} if len(value) == 1:
            return _glob_match(path, glob, place)
        case {"glob": _} if len(value) == 1:
            raise ConfigInvalid(f"the glob for {shown} is no text", hint=_FORMS, place=place)
    if not value or "exact" in value or "glob" in value:
        raise ConfigInvalid(f"the condition on {shown} says not one thing", hint=_FORMS, place=place)
    minimum = _limit(value.get("min"), shown, place)
    maximum = _limit(value.get("max"), shown, place)
    if minimum is None and maximum is None:
        raise ConfigInvalid(f"the range for {shown} has no end", hint=_FORMS, place=place)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ConfigInvalid(
            f"the range for {shown} holds no number", hint="swap `min` and `max`", place=place
        )
    return ArgumentMatch(path, "range", minimum=minimum, maximum=maximum)


def _glob_match(path: str, glob: str, place: Place | None) -> ArgumentMatch:
    try:
        return ArgumentMatch(path, "glob", glob=compile_glob(glob).text)
    except ConfigInvalid as error:
        raise ConfigInvalid(error.message, hint=error.hint, place=place) from None


def _limit(value: object, shown: str, place: Place | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigInvalid(f"an end of the range for {shown} is no number", hint=_FORMS, place=place)
    return value


def format_argument_match(match: ArgumentMatch) -> dict[str, object]:
    """The condition spelled out as JSON, as `parse_argument_match` reads it beside `match.path`."""
    if match.test == "exact":
        return {"exact": match.exact}
    if match.test == "glob":
        return {"glob": match.glob}
    ends = {"min": match.minimum, "max": match.maximum}
    return {key: end for key, end in ends.items() if end is not None}
