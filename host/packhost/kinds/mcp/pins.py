"""What an upstream server says of its tools, beside what a person accepted of them.

A definition is what a model is shown or what a client trusts: name, title, description, schemas,
annotations. A definition that is not what was accepted is withheld until a person has looked at it
(`packhost accept`): pure functions tell whether and how the two differ.

The accepted definitions are the file `pins.json` (`PINS_FILE`) beside the accepted manifest. Where
a server says anything else, the kind keeps that by `workspace.observed.Observed(state).remember(pack, live)`,
which is what `accept` then shows; a server that says what was accepted is forgotten there. A pack without
the file has nothing accepted: every definition counts as new.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.characters import lookalikes, tagged, visible
from packhost.workspace.pinned import PINS_FILE, Definition, Pins, digest, pins_text, read_pins

__all__ = [
    "PINS_FILE",
    "Definition",
    "PinChange",
    "Pins",
    "changed_tools",
    "compare",
    "definition",
    "diff_lines",
    "digest",
    "hidden_notes",
    "live_pins",
    "pins_text",
    "read_pins",
]

Group = Literal["tool", "prompt", "template", "server"]
GROUPS: Final[tuple[Group, ...]] = ("tool", "prompt", "template", "server")
_FIELDS: Final[Mapping[Group, tuple[str, ...]]] = {
    "tool": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompt": ("name", "title", "description", "arguments"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType"),
    "server": ("instructions",),
}
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "annotations": ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"),
    "arguments": ("name", "title", "description", "required"),
}
_NAMED_BY: Final[Mapping[Group, str]] = {"tool": "name", "prompt": "name", "template": "uriTemplate"}
_SNAKE: Final = {
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "uriTemplate": "uri_template",
    "mimeType": "mime_type",
}
_WIDEST: Final = 1_000
"""Characters of one shown line."""


@dataclass(frozen=True, slots=True)
class PinChange:
    """One definition that is not what was accepted; `before` and `after` are `None` where there is none."""

    key: str
    change: Literal["new", "changed", "gone"]
    before: Definition | None
    after: Definition | None

    @property
    def name(self) -> str:
        """What the server calls it."""
        return self.key.partition(":")[2]


def definition(group: Group, thing: Any) -> Definition:
    """What is pinned of a tool, prompt or template: of its wire form, or of the SDK's object."""
    found: dict[str, Any] = {}
    for name in _FIELDS[group]:
        value = (
            thing.get(name) if isinstance(thing, Mapping) else getattr(thing, _SNAKE.get(name, name), None)
        )
        plain = _known(name, _plain(value))
        if plain not in (None, "", {}, []):
            found[name] = plain
    return found


def _known(field: str, value: Any) -> Any:
    """A value without members that no client reads, and without those that are left empty."""
    known = _MEMBERS.get(field)
    if known is None:
        return value
    if isinstance(value, list):
        return [_known(field, one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {name: value[name] for name in known if value.get(name) is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def live_pins(
    *,
    tools: Iterable[Any] = (),
    prompts: Iterable[Any] = (),
    templates: Iterable[Any] = (),
    instructions: str | None = None,
) -> dict[str, Definition]:
    """What a server says of itself now; of two tools with one name the first counts, as for a client."""
    found: dict[str, Definition] = {}
    given: tuple[tuple[Group, Iterable[Any]], ...] = (
        ("tool", tools),
        ("prompt", prompts),
        ("template", templates),
    )
    for group, things in given:
        for thing in things:
            one = definition(group, thing)
            found.setdefault(f"{group}:{one.get(_NAMED_BY[group], '')}", one)
    if instructions:
        found["server:instructions"] = {"instructions": instructions}
    return found


def compare(pinned: Pins, live: Pins, looked_at: Collection[str] = GROUPS) -> tuple[PinChange, ...]:
    """How the two differ, by key; groups that were not looked at are left out."""
    return tuple(
        PinChange(key, _change(pinned.get(key), live.get(key)), pinned.get(key), live.get(key))
        for key in sorted({*pinned, *live})
        if key.partition(":")[0] in looked_at and not _same(pinned.get(key), live.get(key))
    )


def changed_tools(pinned: Pins, live: Pins) -> dict[str, PinChange]:
    """The tools, by the server's own names, that are not what was accepted: none of them may be called."""
    return {change.name: change for change in compare(pinned, live, ("tool",))}


def _same(before: Definition | None, after: Definition | None) -> bool:
    # by digest: to Python `true` and `1` are one
    return before is not None and after is not None and digest(before) == digest(after)


def _change(before: Definition | None, after: Definition | None) -> Literal["new", "changed", "gone"]:
    if before is None:
        return "new"
    return "gone" if after is None else "changed"


def diff_lines(change: PinChange) -> list[str]:
    """The change as a person reads it: marked lines, text line by line, nothing hidden."""
    lines = difflib.unified_diff(
        list(_lines(change.before)), list(_lines(change.after)), lineterm="", n=3 if change.before else 0
    )
    shown = [line for number, line in enumerate(lines) if number > 1 and not line.startswith("@@")]
    if not shown and change.before is not None and change.after is not None:
        shown = [f"-sha256: {digest(change.before)}", f"+sha256: {digest(change.after)}"]
    return [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}… (cut)" for line in shown]


def _lines(one: Definition | None) -> Iterator[str]:
    """A definition a line a fact: text as text, schemas as JSON."""
    for field in _ordered(one or {}):
        value = (one or {})[field]
        if isinstance(value, str):
            head, *rest = visible(value).split("\n")
            yield f"{field}: {head}"
            yield from (f"{' ' * len(field)}  {line}" for line in rest)
        else:
            head, *rest = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True).split("\n")
            yield f"{field}: {visible(head)}"
            yield from (f"  {visible(line)}" for line in rest)


def _ordered(one: Definition) -> list[str]:
    known = [name for fields in _FIELDS.values() for name in fields]
    return sorted(one, key=lambda name: known.index(name) if name in known else len(known))


def hidden_notes(text: str, *, name: bool = False) -> list[str]:
    """What of a text a person does not see, in sentences; `name` for one short word such as a tool's name."""
    notes = []
    shown = visible(text)
    if shown != text:
        count = sum(visible(character) != character for character in text)
        what = f"{count} characters that nobody sees" if count != 1 else "a character that nobody sees"
        notes.append(f"it holds {what}: {_around(shown)}")
    if said := tagged(text):
        notes.append(f"in tag characters, which models read, it says `{visible(said)[:_WIDEST]}`")
    return notes + [f"the letter {one}" for one in lookalikes(text[:100_000], short=name)[:4]]


def _around(shown: str) -> str:
    at = max(shown.find("\\u"), shown.find("\\U"), 0)
    piece = shown[max(at - 20, 0) : at + 40].replace("\n", " ")
    return f"`{piece}`"
