"""What all layers together leave of a scope, for people to read; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Sequence

from packhost.rules.globs import overlaps
from packhost.rules.scopes import Layer, PathScope, Scope, format_scope


def remaining(scope: Scope, layers: Sequence[Layer]) -> tuple[str, ...]:
    """The lines of what is left of a tool's scope; one that names no paths is left whole or not at all.

    Globs of which neither lies in the other are joined by `and`: a path must match both.
    """
    if not isinstance(scope, PathScope):
        return (format_scope(scope),)
    left: list[tuple[str, ...]] = [(scope.glob,)]
    for layer in layers:
        globs = [s.glob for s in layer.scopes if isinstance(s, PathScope) and s.access == scope.access]
        left = [
            _both(found, glob) for found in left for glob in globs if all(overlaps(f, glob) for f in found)
        ]
    lines = dict.fromkeys(" and ".join(found) for found in left)
    return tuple(f"path {scope.access} {line}" for line in lines)


def _both(found: tuple[str, ...], glob: str) -> tuple[str, ...]:
    if any(_within(one, glob) for one in found):
        return found
    return (*(one for one in found if not _within(glob, one)), glob)


def _within(inner: str, outer: str) -> bool:
    """Whether all that `inner` matches is plainly matched by `outer`; `False` where it takes thought."""
    if outer in ("**", inner):
        return True
    folder = outer.removesuffix("/**")
    plain = folder != outer and not any(sign in folder for sign in "*?[")
    return plain and (inner == folder or inner.startswith(f"{folder}/"))
