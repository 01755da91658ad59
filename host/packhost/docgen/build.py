"""Pages written, or compared with what stands on disk."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packhost.docgen.block import merge
from packhost.errors import ConfigInvalid, Place


@dataclass(frozen=True, slots=True)
class Page:
    """A page's file and the managed part that is generated for it."""

    path: Path
    generated: str


def write(pages: Iterable[Page]) -> list[Path]:
    """Write what has changed, keeping what stands outside the managed blocks; the files that were written.

    Raises `ConfigInvalid` for a page that cannot be read or written, or whose block is damaged.
    """
    written = []
    for page in pages:
        before = _read(page.path)
        after = merge(before, page.generated, str(page.path))
        if after != before:
            _write(page.path, after)
            written.append(page.path)
    return written


def drift(pages: Iterable[Page], base: Path) -> str:
    """A unified diff from what stands on disk to what would be written; empty where nothing has drifted.

    Paths are shown relative to `base`. Raises as `write` does.
    """
    found: list[str] = []
    for page in pages:
        before = _read(page.path)
        after = merge(before, page.generated, str(page.path))
        name = str(page.path.relative_to(base)) if page.path.is_relative_to(base) else str(page.path)
        found += difflib.unified_diff(
            (before or "").splitlines(keepends=True),
            after.splitlines(keepends=True),
            name if before is not None else "/dev/null",
            name,
        )
    return "".join(found)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise ConfigInvalid("the page cannot be read as UTF-8 text", place=Place(str(path))) from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        said = (error.strerror or "it failed").lower()
        raise ConfigInvalid(f"the page cannot be written: {said}", place=Place(str(path))) from None
