"""Globs over paths of a workspace, and over tools' names.

A glob is relative to the workspace's root and has segments parted by `/`. `*` stands for any run of
characters within one segment, `**`, which must be a whole segment, for any number of segments, none
included: `src/**` matches `src` itself and all below it, `**` also the root. Dot-files are matched
like any other; there is no `?`, no brace, no class and no escape.

A glob is what a person wrote and is brought to NFC. A path is what is on disk and is compared as it
stands, code point by code point and case by case: no fold can widen a scope, and a name on disk in
another Unicode form is reached by a wildcard alone. The root is spelled `.` or the empty string.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from packhost.errors import ConfigInvalid

MAXIMUM_LENGTH = 1024
"""Longest glob in characters; longer ones are errors."""

_DRIVE = re.compile(r"[A-Za-z]:(/|\Z)")
_TRICKS = re.compile(r"[?\[\]{}\\\x00-\x1f\x7f]")
_DOTS = frozenset({"", ".", ".."})
_TOOL_PATTERN = re.compile(r"[a-z0-9*-]+:[a-z0-9_*-]+\Z")


class Segment:
    """One part of a pattern, split at its `*`; it matches whole names in time linear in both."""

    __slots__ = ("first", "last", "literal", "middle")

    def __init__(self, text: str) -> None:
        pieces = text.split("*")
        self.literal = text if len(pieces) == 1 else None
        self.first, self.last = pieces[0], pieces[-1]
        self.middle = tuple(piece for piece in pieces[1:-1] if piece)

    def matches(self, name: str) -> bool:
        if self.literal is not None:
            return name == self.literal
        end = len(name) - len(self.last)
        at = len(self.first)
        if end < at or not name.startswith(self.first) or not name.endswith(self.last):
            return False
        for piece in self.middle:
            found = name.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    def overlaps(self, other: Segment) -> bool:
        """Whether some name matches both. With a `*` on either side only the ends can collide."""
        if self.literal is not None:
            return other.matches(self.literal)
        if other.literal is not None:
            return self.matches(other.literal)
        starts = self.first.startswith(other.first) or other.first.startswith(self.first)
        return starts and (self.last.endswith(other.last) or other.last.endswith(self.last))


class Glob:
    """A checked glob, ready to match; `text` is its NFC form. Made by `compile_glob`."""

    __slots__ = ("_below", "_blocks", "_exact", "segments", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = text.split("/")
        self.segments = tuple(None if part == "**" else Segment(part) for part in parts)
        self._exact = "*" not in text
        head = text[:-3] if text.endswith("/**") else None
        self._below = head if head is not None and "*" not in head else None
        blocks: list[list[Segment]] = [[]]
        for segment in self.segments:
            if segment is None:
                blocks.append([])
            else:
                blocks[-1].append(segment)
        self._blocks = tuple(map(tuple, blocks))

    def matches(self, path: str) -> bool:
        """Whether a canonical path (see `canonical`) matches."""
        if self._exact:
            return path == self.text
        if self._below is not None:
            head = self._below
            return path.startswith(head) and (len(path) == len(head) or path[len(head)] == "/")
        return self._matches_names(path.split("/") if path else [])

    def _matches_names(self, names: list[str]) -> bool:
        first, *rest = self._blocks
        if not rest:
            return len(names) == len(first) and _fits(first, names, 0)
        last = rest.pop()
        end = len(names) - len(last)
        at = len(first)
        if end < at or not _fits(first, names, 0) or not _fits(last, names, end):
            return False
        for block in rest:
            # The leftmost place is the best: whatever follows has then most room.
            while at + len(block) <= end and not _fits(block, names, at):
                at += 1
            at += len(block)
            if at > end:
                return False
        return True

    def overlaps(self, other: Glob) -> bool:
        """Whether some path matches both, by the product of both automata over segments."""
        mine, theirs = self.segments, other.segments
        states = {0}
        for i in range(len(mine) + 1):
            here = mine[i] if i < len(mine) else None
            crossing = i < len(mine) and here is None
            following: set[int] = set()
            for j in range(len(theirs) + 1):
                if j not in states:
                    continue
                there = theirs[j] if j < len(theirs) else None
                if j < len(theirs) and (crossing or there is None):
                    states.add(j + 1)
                if crossing or (here is not None and j < len(theirs) and there is None):
                    following.add(j)
                elif here is not None and there is not None and here.overlaps(there):
                    following.add(j + 1)
            if i < len(mine):
                states = following
        return len(theirs) in states


def _fits(block: tuple[Segment, ...], names: list[str], at: int) -> bool:
    return all(segment.matches(names[at + offset]) for offset, segment in enumerate(block))


def canonical(relative: str) -> str | None:
    """The path as globs see it: `""` for the root; `None` for one that is not a clean relative path.

    Not clean are an absolute path, an empty, `.` or `..` segment and NUL: nothing matches them.
    """
    if relative in ("", "."):
        return ""
    if "\0" in relative or not _DOTS.isdisjoint(relative.split("/")):
        return None
    return relative


@lru_cache(maxsize=4096)
def compile_glob(text: str) -> Glob:
    """Check a glob and make it ready.

    :raises ConfigInvalid: it is empty, leaves the root, or uses what globs here do not have.
    """
    glob = unicodedata.normalize("NFC", text)
    shown = f"`{printable(text)}`"
    if not glob or len(glob) > MAXIMUM_LENGTH:
        raise ConfigInvalid(
            "a glob is empty" if not glob else f"a glob is longer than {MAXIMUM_LENGTH} characters",
            hint="write a path relative to the workspace's root, such as `src/**`",
        )
    if glob.startswith(("/", "~")) or _DRIVE.match(glob):
        raise ConfigInvalid(
            f"the glob {shown} does not start at the workspace's root",
            hint="write it relative to the workspace's root, without a leading `/`, `~` or drive",
        )
    if found := _TRICKS.search(glob):
        raise ConfigInvalid(
            f"the glob {shown} holds `{printable(found[0])}`, which globs here do not have",
            hint="only `*` (within a segment) and `**` (across segments) are special; "
            "write alternatives as lines of their own",
        )
    for part in glob.split("/"):
        _check_part(part, shown)
    return Glob(glob)


def _check_part(part: str, shown: str) -> None:
    if part == "..":
        raise ConfigInvalid(f"the glob {shown} leaves the workspace's root", hint="take `..` out of it")
    if part in _DOTS:
        raise ConfigInvalid(
            f"the glob {shown} has an empty or `.` segment",
            hint="drop it: `src/**` is everything below `src`, `**` everything",
        )
    if "**" in part and part != "**":
        raise ConfigInvalid(
            f"the glob {shown} has `**` within the segment `{printable(part)}`",
            hint="`**` must stand alone between slashes: write `*` within a segment, `a/**/b` across them",
        )


def matches(glob: str, relative: str) -> bool:
    """Whether the path matches; a path that is not clean (see `canonical`) matches nothing.

    :raises ConfigInvalid: the glob is not one.
    """
    compiled = compile_glob(glob)
    path = canonical(relative)
    return path is not None and compiled.matches(path)


def overlaps(a: str, b: str) -> bool:
    """Whether some path matches both globs; exact, in time linear in the product of their segments.

    :raises ConfigInvalid: one of them is not a glob.
    """
    return compile_glob(a).overlaps(compile_glob(b))


@lru_cache(maxsize=4096)
def _compile_tool(pattern: str) -> tuple[Segment, Segment]:
    text = "*:*" if pattern == "*" else pattern
    if "**" in text or not _TOOL_PATTERN.match(text):
        raise ConfigInvalid(
            f"`{printable(pattern)}` is not a pattern of tools",
            hint="write `pack:tool` with `*` for any run of characters on one side of the colon, "
            "such as `workspace:*` or `*:read_*`; `*` alone is every tool",
        )
    pack, _, tool = text.partition(":")
    return Segment(pack), Segment(tool)


def check_tool_pattern(pattern: str) -> None:
    """:raises ConfigInvalid: it is not `pack:tool` with `*` on either side of the colon, or `*`."""
    _compile_tool(pattern)


def tool_matches(pattern: str, canonical_name: str) -> bool:
    """Whether a tool's canonical name `pack:tool` matches the pattern; `*` does not cross the colon.

    :raises ConfigInvalid: the pattern is not one.
    """
    pack, tool = _compile_tool(pattern)
    first, colon, rest = canonical_name.partition(":")
    return bool(colon) and pack.matches(first) and tool.matches(rest)


def tool_includes(outer: str, inner: str) -> bool:
    """Whether every tool that matches `inner` also matches `outer`.

    :raises ConfigInvalid: one of them is not a pattern of tools.
    """
    _compile_tool(inner)
    # A character that no name has stands for whatever the inner `*` may be: only a `*` takes it.
    return tool_matches(outer, ("*:*" if inner == "*" else inner).replace("*", "\0"))


def printable(text: str, limit: int = 80) -> str:
    """The text in one line for a message: control characters escaped, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
