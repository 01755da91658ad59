"""Tools that search: files by name, text in files."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

from packhost.api import CallContext, FileStat, InvalidInput, PackhostError
from packhost_packs.workspace.text import is_binary

SEARCHED = 4 * 1024 * 1024
"""Bytes of a file beyond which it is not searched."""
SECONDS = 20.0
"""How long a search may take before it answers with what it has."""
EXCERPT = 300
"""Characters of a matching line that are given back."""
LEFT_OUT = (".git",)
"""Folders that no search goes into, unless it starts there."""
_CHECKED = 100
_LOOKED_AT = 2_000
"""Characters of a line that a regular expression looks at."""
_WRITTEN_OUT = 10_000
_REPEATED = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")

Test = Callable[[str], bool]


def find_files(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Files whose path matches a glob, a page at a time."""
    offset, limit = arguments.get("offset", 0), arguments.get("limit", 200)
    glob = _anywhere(arguments["pattern"])
    walk = context.files.walk(arguments.get("path", "."), glob=glob, skip_folders=LEFT_OUT)
    if offset > len(walk.files):
        raise InvalidInput(
            f"`offset` {offset} is past the end: {len(walk.files)} files match", hint="count from 0"
        )
    end = min(offset + limit, len(walk.files))
    more = end < len(walk.files)
    return {
        "files": [{"path": file.path, "size": file.size} for file in walk.files[offset:end]],
        "total": len(walk.files),
        "truncated": more or not walk.complete,
        "next_offset": end if more else None,
        "skipped": dict(walk.skipped),
    }


def _anywhere(pattern: str) -> str:
    return pattern if "/" in pattern else f"**/{pattern}"


def search_text(context: CallContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Lines that hold a text or match a regular expression."""
    matches_line = _test(
        arguments["query"], arguments.get("regex", False), arguments.get("ignore_case", False)
    )
    limit = arguments.get("limit", 100)
    walk = context.files.walk(
        arguments.get("path", "."), glob=_anywhere(arguments.get("glob", "**")), skip_folders=LEFT_OUT
    )
    skipped = Counter(walk.skipped)
    found: list[dict[str, Any]] = []
    searched, stopped = 0, "" if walk.complete else "files"
    deadline = time.monotonic() + SECONDS
    for file in walk.files:
        text = _text(context, file, skipped)
        if text is None:
            continue
        searched += 1
        stopped = _search(file.path, text, matches_line, found, limit, deadline) or stopped
        if stopped in ("limit", "time"):
            break
    return {
        "matches": found,
        "files_searched": searched,
        "truncated": bool(stopped),
        "stopped_by": stopped or None,
        "skipped": dict(skipped),
    }


def _search(
    path: str, text: str, matches_line: Test, found: list[dict[str, Any]], limit: int, deadline: float
) -> str:
    for number, line in _lines(text):
        if number % _CHECKED == 1 and time.monotonic() > deadline:
            return "time"
        if matches_line(line):
            if len(found) == limit:
                return "limit"
            found.append({"path": path, "line": number, "text": line[:EXCERPT]})
    return ""


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        yield number, line.removesuffix("\r")


def _text(context: CallContext, file: FileStat, skipped: Counter[str]) -> str | None:
    if file.size > SEARCHED:
        skipped["large"] += 1
        return None
    try:
        data = context.files.read(file.path, limit=SEARCHED)
    except PackhostError:
        skipped["unreadable"] += 1
        return None
    try:
        if not is_binary(data):
            return data.decode()
    except UnicodeDecodeError:
        pass
    skipped["binary"] += 1
    return None


def _test(query: str, regex: bool, ignore_case: bool) -> Test:
    if regex:
        return _regex(query, ignore_case)
    if ignore_case:
        wanted = query.lower()
        return lambda line: wanted in line.lower()
    return lambda line: query in line


def _regex(query: str, ignore_case: bool) -> Test:
    """A test that no pattern can make slow.

    The engine behind pydantic needs time in proportion to the text and to the pattern written out, so the
    looked-at part of a line and the written-out length are bounded.
    """
    length = len(query)
    for least, most in _REPEATED.findall(query):
        length *= max(int(most or least), 1)
    if length > _WRITTEN_OUT:
        raise _unusable("it repeats too much", "use smaller counts in `{…}`, or a shorter expression")
    pattern = f"(?i:{query})" if ignore_case else query
    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        why = (
            str(error)
            .strip()
            .splitlines()[-1]
            .removeprefix("error: ")
            .removeprefix("SchemaError: ")
            .strip()
            .rstrip(".")
            .lower()
        )
        raise _unusable(
            why, "look-around and back-references do not exist here; leave `regex` out for plain text"
        ) from None
    return lambda line: validator.isinstance_python(line[:_LOOKED_AT])


def _unusable(why: str, hint: str) -> InvalidInput:
    return InvalidInput(f"the regular expression cannot be used: {why}", hint=hint, path="/query")
