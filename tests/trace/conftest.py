"""The published corpus, and clean traces to plant faults in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).parent / "corpus"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a `fixture_file` runs once for every file of the corpus."""
    if "fixture_file" in metafunc.fixturenames:
        files = sorted(CORPUS.glob("*.json"))
        metafunc.parametrize("fixture_file", files, ids=[file.stem for file in files])


@pytest.fixture
def corpus() -> list[Path]:
    """Every file of the corpus."""
    return sorted(CORPUS.glob("*.json"))


@pytest.fixture(scope="session")
def clean() -> Callable[[str], Any]:
    """A clean trace of the corpus by its name, as data of one's own."""

    def load(name: str) -> Any:
        trace = json.loads((CORPUS / f"{name}.json").read_bytes())
        assert trace.pop("expect") == []
        return copy.deepcopy(trace)

    return load
