"""The official conformance suite: all that either revision requires, and the page that says so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.real


def loaded() -> ModuleType:
    """The module that runs the suite, which is a program of its own."""
    path = Path(__file__).parents[1] / "conformance/official.py"
    spec = importlib.util.spec_from_file_location("official", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["official"] = module
    spec.loader.exec_module(module)
    return module


def test_packhost_passes_what_both_revisions_require_and_the_page_says_so(parts: Path) -> None:
    official = loaded()
    found = official.outcomes()
    failed = [
        (revision, one.name)
        for revision, scenarios in found.items()
        for one in scenarios
        if one.scored and one.failed
    ]
    assert failed == []
    assert official.page(found) == official.PAGE.read_text(encoding="utf-8")
