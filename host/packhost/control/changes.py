"""Waiting for something to happen, for whoever shows a workspace as it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from packhost.control.base import Parts, text, whole
from packhost.control.consoles import checked_url
from packhost.store.ops import events

LONGEST: Final = 60
"""Seconds that one wait lasts at most."""
_LAST: Final = 2**53


async def wait(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Return once an event after `after` is committed, or after `within` seconds; `head` is the last one.

    An `after` that was never written, as after a restoration, is answered at once.
    """
    after, within = whole(params, "after", 0, _LAST), whole(params, "within", 25, LONGEST)
    with parts.store.watch("events") as watch, anyio.move_on_after(within):
        while parts.store.read(events.head).id == after:
            await watch.changed()
    head = parts.store.read(events.head).id
    return {"head": head, "changed": head != after}


async def console(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A console shows this workspace at `url`, for as long as this operation is not cancelled.

    It does not return: a console that goes away takes its connection along, and is forgotten with it.
    """
    with parts.consoles.shown_at(checked_url(text(params, "url"))):
        await anyio.sleep_forever()
