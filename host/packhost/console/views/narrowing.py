"""What a person chooses of "always allow": each argument exact, by a pattern, or anything; and until when."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.console.views.texts import plural, short, shown
from packhost.errors import InvalidInput

How = Literal["exact", "pattern", "any"]
UNTIL: Final[Mapping[str, tuple[str, float | None]]] = {
    "hour": ("for 1 hour", 3_600.0),
    "day": ("for 1 day", 86_400.0),
    "week": ("for 1 week", 7 * 86_400.0),
    "month": ("for 30 days", 30 * 86_400.0),
    "open": ("until somebody revokes it", None),
}
FIRST_UNTIL: Final = "day"
_MOST_USES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument and what is chosen for it."""

    name: str
    label: str
    exact: str
    is_path: bool
    how: How
    pattern: str
    suggestions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """All that is chosen; `only` and `anything` are as the operations take them."""

    arguments: tuple[Argument, ...]
    until: str = FIRST_UNTIL
    uses: int | None = None

    @property
    def only(self) -> dict[str, str]:
        """The patterns, by argument."""
        return {one.name: one.pattern for one in self.arguments if one.how == "pattern"}

    @property
    def anything(self) -> list[str]:
        """The arguments that may be anything."""
        return [one.name for one in self.arguments if one.how == "any"]

    @property
    def expires_in(self) -> float | None:
        """Seconds; `None` until it is revoked."""
        return UNTIL[self.until][1]

    @property
    def params(self) -> dict[str, Any]:
        """What `grants.offer` and `approvals.decide` take."""
        return {"only": self.only, "any": self.anything}

    @property
    def ends(self) -> str:
        """Until when and how often, in words."""
        often = f", at most {plural(self.uses, 'time')}" if self.uses is not None else ""
        return f"{UNTIL[self.until][0]}{often}"

    def digest(self, offer: Mapping[str, Any]) -> str:
        """Stands for exactly this choice and offer, so that what is given is what was shown."""
        said = json.dumps([offer["match"], offer["tool_version"], self.until, self.uses], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:32]


def suggestions(path: str) -> tuple[str, ...]:
    """Patterns that cover a path, the narrowest first: its folder, each folder above, everything."""
    parts = path.split("/")[:-1]
    return (*(f"{'/'.join(parts[:count])}/**" for count in range(len(parts), 0, -1)), "**")


def choice_of(match: Mapping[str, Any], paths: frozenset[str], given: Mapping[str, str]) -> Choice:
    """What is chosen of an exact offer; without `given` every argument stays exactly as it is.

    :raises InvalidInput: something is chosen that there is not.
    """
    arguments = tuple(_argument(name, wanted, name in paths, given) for name, wanted in match.items())
    until, uses = given.get("until", FIRST_UNTIL), given.get("uses", "").strip()
    if until not in UNTIL:
        raise InvalidInput("choose how long it holds", hint="")
    if uses and not (uses.isascii() and uses.isdigit() and 0 < int(uses[:9]) <= _MOST_USES):
        raise InvalidInput(
            "the number of uses is a whole number above 0", hint="leave it empty for any number"
        )
    return Choice(arguments, until, int(uses) if uses else None)


def _argument(name: str, wanted: Any, is_path: bool, given: Mapping[str, str]) -> Argument:
    exact = wanted.get("exact") if isinstance(wanted, Mapping) and "exact" in wanted else wanted
    how = given.get(f"how.{name}", "exact")
    offered = suggestions(exact) if is_path and isinstance(exact, str) else ()
    if how not in ("exact", "any") and not (how == "pattern" and offered):
        raise InvalidInput(f"choose what `{short(name)}` may be", hint="")
    pattern = given.get(f"pattern.{name}", "").strip() or (offered[0] if offered else "")
    return Argument(
        name=name,
        label=shown(name),
        exact=short(json.dumps(exact, ensure_ascii=False), 160),
        is_path=bool(offered),
        how=_how(how),
        pattern=pattern,
        suggestions=offered,
    )


def _how(text: str) -> How:
    return "pattern" if text == "pattern" else "any" if text == "any" else "exact"
