"""PostgreSQL that is restarted, or crashes, in the middle of a run: no effect lost, none doubled."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from postgres_server import AVAILABLE, REQUIRED, Server

from packhost.errors import StoreUnavailable
from packhost.store.audit import verify_chain
from packhost.store.ops import events, executions

if not (AVAILABLE or REQUIRED):
    pytest.skip("PostgreSQL is not installed", allow_module_level=True)

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    # the demonstration is a program of its own, which leaves its pipes to its end
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def replicas() -> ModuleType:
    """The demonstration of two hosts over one store."""
    path = Path(__file__).with_name("two_replicas.py")
    spec = importlib.util.spec_from_file_location("two_replicas", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def ended(shown: Any, run_id: str) -> Any:
    """The run once it has ended; while the database is away nobody knows."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            if row := shown._ended(run_id):
                return row
        except StoreUnavailable:
            continue
        time.sleep(0.02)
    last = [(one.type, one.actor) for one in shown.store.read(events.page, 0, run_id, 10_000)[-8:]]
    raise AssertionError(f"run {run_id} does not end: {shown.store.read(executions.get, run_id)}, {last}")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_run_goes_on_after_its_database_was_restarted(
    replicas: ModuleType, own_postgres: Server, tmp_path: Path, mode: str
) -> None:
    chance = random.Random(3)
    shown = replicas.Demonstration(tmp_path, own_postgres.url(), 3.0, lambda line: None)
    try:
        shown.open()
        for number in range(int(os.environ.get("PACKHOST_ROUNDS", 1)) // 20 or 1):
            run_id = shown.start_run(f"round-{number}")
            time.sleep(chance.uniform(0.1, 0.6))
            own_postgres.stop(mode)
            time.sleep(chance.choice([0.0, 1.5]))
            own_postgres.start()
            row = ended(shown, run_id)
            print(shown.prove(run_id, row))
            assert shown.store.read(verify_chain).ok
    finally:
        shown.close()
        del shown
        gc.collect()
