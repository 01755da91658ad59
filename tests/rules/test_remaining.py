"""What layers leave of a scope, as people read it."""

from __future__ import annotations

import pytest

from packhost.rules.remaining import remaining
from packhost.rules.scopes import Layer, parse_scope


@pytest.mark.parametrize(
    ("scope", "bounds", "left"),
    [
        ("path write **", (["path write src/**", "path read **"],), ["path write src/**"]),
        ("path write src/a/**", (["path write src/**"],), ["path write src/a/**"]),
        ("path write src/**", (["path write **"], ["path write src/a/**", "path write src/b"]),
         ["path write src/a/**", "path write src/b"]),
        ("path read **/*.md", (["path read docs/**"],), ["path read **/*.md and docs/**"]),
        ("path read **", (["path read docs/**"], ["path read **/*.md"]), ["path read docs/** and **/*.md"]),
        ("path write **", (["path read **"],), []),
        ("path write a", (["path write b"],), []),
        ("network example.org:443", (["path read **"],), ["network example.org:443"]),
    ],
)  # fmt: skip
def test_each_layer_narrows(scope: str, bounds: tuple[list[str], ...], left: list[str]) -> None:
    layers = [Layer(str(n), tuple(map(parse_scope, lines))) for n, lines in enumerate(bounds)]
    assert list(remaining(parse_scope(scope), layers)) == left
