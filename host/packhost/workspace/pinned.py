"""`pins.json` of a pack: what its upstream server said of itself when a person accepted it.

The file lies beside the manifest, so that consent covers it like any source of the pack. Each definition
is kept whole, so that a changed one can be shown beside the one that was accepted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from packhost.errors import ConfigInvalid, Place

PINS_FILE: Final = "pins.json"
_VERSION: Final = 1

Definition = Mapping[str, Any]
"""What a server says of one thing, under the names that it has on the wire; nothing that is left out."""
Pins = Mapping[str, Definition]
"""Definitions by `tool:NAME`, `prompt:NAME`, `template:URI` and `server:instructions`."""


def digest(definition: Definition) -> str:
    """SHA-256 of a definition, whatever the order of its members."""
    text = json.dumps(definition, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_pins(source: bytes, name: str = PINS_FILE) -> dict[str, Definition]:
    """The definitions in a file; `name` is the file as errors call it.

    Raises `ConfigInvalid` for anything that `pins_text` does not write.
    """
    try:
        data = json.loads(source)
        if data["packhost"] != _VERSION:
            raise ValueError(data["packhost"])
        pins = {str(key): _definition(one) for key, one in data["definitions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigInvalid(
            "the definitions that were accepted of this server cannot be read",
            hint="look at them and accept them again with `packhost accept`",
            place=Place(name),
        ) from None
    return pins


def _definition(value: Any) -> Definition:
    if not isinstance(value, dict):
        raise TypeError("definition")
    return value


def pins_text(pins: Pins) -> bytes:
    """The file's content, the same for the same definitions."""
    data = {"packhost": _VERSION, "definitions": {key: pins[key] for key in sorted(pins)}}
    return (json.dumps(data, ensure_ascii=True, indent=1, sort_keys=True) + "\n").encode()
