"""Which resource an address means: looked up by its segments, where routes are else tried one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

_ANY: Final = ""
"""Stands for a segment in braces; an address has no empty segment."""


class Below(Mount):
    """A mount that takes every address below its path, also one with a line break in it."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        super().__init__(path, app=app)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


class Addresses:
    """Routes of which each has one segment in braces at most, and whichever methods."""

    def __init__(self, routes: Sequence[Route], unknown: ASGIApp) -> None:
        """`unknown` answers everything else."""
        self.routes = list(routes)
        self._unknown = unknown
        self._found: dict[tuple[str, ...], tuple[ASGIApp, int, str]] = {}
        for route in routes:
            parts = route.path.split("/")[1:]
            braced = [place for place, part in enumerate(parts) if part.startswith("{")]
            place, name = (braced[0], parts[braced[0]][1:-1]) if braced else (-1, "")
            shape = tuple(_ANY if part.startswith("{") else part for part in parts)
            self._found[shape] = (route.app, place, name)
        self._places = sorted({place for _, place, _ in self._found.values()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to what its address means."""
        parts = tuple(scope["path"].removeprefix(scope.get("root_path", "")).split("/")[1:])
        for place in self._places if _ANY not in parts else ():
            if place >= len(parts):
                continue
            shape = parts if place < 0 else (*parts[:place], _ANY, *parts[place + 1 :])
            found = self._found.get(shape)
            if found is not None:
                app, _, name = found
                scope["path_params"] = {} if place < 0 else {name: parts[place]}
                await app(scope, receive, send)
                return
        await self._unknown(scope, receive, send)
