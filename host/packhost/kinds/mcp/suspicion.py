"""What in an upstream's definitions speaks to the model rather than of the tool.

A description is read by every model that is offered the tool, whether it is called or not. None of these
findings proves malice and their absence proves nothing: they say where a person should look before
accepting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.characters import visible
from packhost.kinds.mcp.pins import Definition, Pins, hidden_notes

What = Literal["hidden", "instructs", "exfiltrates", "names-another", "shadows", "same-name", "padded"]
HARMLESS: Final = frozenset({"same-name"})
"""What is worth a look, but so common that nothing has to be withheld for it: packs keep the two apart."""
_LONGEST: Final = 8_000
"""Characters of one text beyond which nobody reads to the end."""
_BLANK: Final = re.compile(r"(?:[ \t]{60,}|(?:\r?\n[ \t]*){12,})\S")
_QUOTED: Final = 70
_SHORTEST_NAME: Final = 6

_INSTRUCTS: Final = re.compile(
    r"""
    (?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,3}(?:instruction|prompt|rule|message|guideline)s?
    | (?:do\s+not|don't|never|without)\s+(?:\w+\s+){0,2}
      (?:tell|telling|mention|mentioning|inform|informing|reveal|show|showing|ask|asking|notify)\w*\s+
      (?:\w+\s+){0,4}(?:user|person|human)
    | <\s*/?\s*(?:important|system|secret|instructions?|hidden|critical|admin)\s*>
    | \bsystem\s+prompt\b
    | \b(?:before|after|when|whenever|instead\s+of)\s+(?:\w+\s+){0,2}(?:using|calling|invoking|running)\s+
      (?:\w+\s+){0,2}(?:any|other|another|every|all)\b
    | \b(?:you|the\s+(?:model|assistant|agent|ai|llm))\s+(?:must|shall|have\s+to|are\s+required)\b
    | \balways\s+(?:use|call|invoke|prefer)\s+this\s+tool\b
    | \bas\s+an\s+ai\b | \byou\s+are\s+(?:now|a|an)\s
    """,
    re.IGNORECASE | re.VERBOSE,
)
_EXFILTRATES: Final = re.compile(
    r"""
    (?:~|\$HOME|/home/\w+|/root)/\.\w+ | \bid_(?:rsa|ed25519|ecdsa)\b | \.ssh/ | \.aws/ | \.env\b
    | /etc/(?:passwd|shadow) | \bmcp\.json\b | \bclaude_desktop_config\b
    | \b(?:send|include|pass|put|add|provide|upload|post|forward|attach|append|leak|exfiltrate)\w*\s+
      (?:\w+\s+){0,6}(?:conversation|chat\s+history|previous\s+messages|system\s+prompt|credentials?|
      passwords?|api\s*keys?|secrets?|access\s+tokens?|private\s+keys?|environment\s+variables?)
    | \b(?:send|upload|post|forward|report)\w*\s+(?:\w+\s+){0,6}(?:to\s+)?https?://
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ASKING_NAMES: Final = frozenset(
    {"system_prompt", "systemprompt", "conversation", "conversation_history", "chat_history", "sidenote"}
)
"""Parameters by which a tool would be given what the conversation holds."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One thing to look at: of which definition, of what sort, and a sentence on one line."""

    key: str
    what: What
    text: str


def suspicions(pins: Pins, elsewhere: Mapping[str, str] | None = None) -> tuple[Suspicion, ...]:
    """What to look at in these definitions; `elsewhere` are other servers' tools: name to whose it is."""
    others = elsewhere or {}
    found: list[Suspicion] = []
    for key in sorted(pins):
        found += _of_names(key, others, pins)
        for where, text in _texts(pins[key]):
            found += _of_text(key, where, text, others)
    return tuple(dict.fromkeys(found))


def skeleton(name: str) -> str:
    """What a name looks like at a glance: case, separators and the usual look-alike signs do not count."""
    folded = re.sub(r"[^a-z0-9]", "", name.casefold().replace("rn", "m"))
    return folded.translate(str.maketrans("0134578", "olaeats"))


def _of_names(key: str, others: Mapping[str, str], pins: Pins) -> Iterator[Suspicion]:
    group, _, name = key.partition(":")
    if group != "tool":
        return
    for note in hidden_notes(name, name=True):
        yield Suspicion(key, "hidden", f"its name is not what it looks like: {note}")
    if name in others:
        yield Suspicion(key, "same-name", f"`{visible(name)}` is also a tool of {others[name]}")
        return
    looks = skeleton(name)
    alike = [other for other in others if skeleton(other) == looks]
    own = [one.partition(":")[2] for one in pins if one.startswith("tool:") and one != key]
    alike += [other for other in own if skeleton(other) == looks]
    for other in alike[:1]:
        of = f" of {others[other]}" if other in others else " of the same server"
        yield Suspicion(key, "shadows", f"its name looks like the tool `{visible(other)}`{of}")


def _of_text(key: str, where: str, text: str, others: Mapping[str, str]) -> Iterator[Suspicion]:
    for note in hidden_notes(text):
        yield Suspicion(key, "hidden", f"{where}: {note}")
    for what, pattern, saying in (
        ("instructs", _INSTRUCTS, "speaks to the model"),
        ("exfiltrates", _EXFILTRATES, "speaks of files or secrets to hand over"),
    ):
        hit = pattern.search(text)
        if hit is not None:
            yield Suspicion(key, what, f"{where} {saying}: `{_around(text, hit)}`")  # type: ignore[arg-type]
    if where.startswith("the parameter") and text.casefold() in _ASKING_NAMES:
        yield Suspicion(key, "exfiltrates", f"{where} asks for what the conversation holds")
    named = [
        one for one in others if len(one) >= _SHORTEST_NAME and re.search(rf"\b{re.escape(one)}\b", text)
    ]
    for other in named[:3]:
        if f"tool:{other}" != key:
            yield Suspicion(
                key, "names-another", f"{where} speaks of `{visible(other)}`, a tool of {others[other]}"
            )
    if len(text) > _LONGEST or _BLANK.search(text):
        yield Suspicion(key, "padded", f"{where} is so long or so blank that its end is out of sight")


def _around(text: str, hit: re.Match[str]) -> str:
    start = max(hit.start() - 10, 0)
    piece = visible(text[start : start + _QUOTED]).replace("\n", " ").replace("`", "'").strip()
    return piece + ("…" if start + _QUOTED < len(text) else "")


def _texts(one: Definition) -> Iterator[tuple[str, str]]:
    for field, value in one.items():
        if field in ("inputSchema", "outputSchema"):
            yield from _in_schema(value, field)
        elif field == "arguments":
            for argument in value:
                yield from _in_schema(argument, field)
        elif field == "annotations":
            yield from ((f"`annotations.{name}`", text) for name, text in _strings(value))
        elif isinstance(value, str):
            yield f"its {field}", value


def _in_schema(value: Any, where: str, deep: int = 0) -> Iterator[tuple[str, str]]:
    """Every text in a schema that a model reads: names of properties among them."""
    if deep > 40 or not isinstance(value, dict | list):
        return
    if isinstance(value, list):
        for one in value:
            yield from [(f"`{where}`", one)] if isinstance(one, str) else _in_schema(one, where, deep + 1)
        return
    for name, inner in value.items():
        if name in ("properties", "patternProperties", "$defs", "definitions") and isinstance(inner, dict):
            for called, schema in inner.items():
                yield f"the parameter `{visible(str(called))}`", str(called)
                yield from _in_schema(schema, f"{where}.{visible(str(called))}", deep + 1)
        elif isinstance(inner, str):
            yield f"`{where}.{visible(name)}`", inner
        else:
            yield from _in_schema(inner, where, deep + 1)


def _strings(value: Any) -> Iterable[tuple[str, str]]:
    return (
        [(name, text) for name, text in value.items() if isinstance(text, str)]
        if isinstance(value, dict)
        else []
    )
