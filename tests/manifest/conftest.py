"""A small sound manifest to bend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

MANIFEST = """\
packhost: 1
id: demo
version: 1.0.0
title: Demo
approvals:
  - {name: go, title: Go ahead}
tools:
  - name: read_it
    description: Reads it.
    kind: python
    target: demo.reading:read_it
    permission: read
    required_approvals: [demo:go]
    required_scopes: [path read **]
    timeout: 10m
    input_schema:
      type: object
      properties:
        path: {type: string, x-path: read}
"""


@pytest.fixture
def manifest() -> Callable[..., bytes]:
    """The manifest with each `old` text replaced by its `new`; each must stand in it."""

    def bend(*changes: tuple[str, str]) -> bytes:
        text = MANIFEST
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text.encode()

    return bend
