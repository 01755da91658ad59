"""What every test may use, and what a plain run leaves out: tests that take long or need real parts."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["postgres_server"]
MARKERS = {"slow": "take long", "real": "need real parts"}
LEFT_OUT = pytest.StashKey[dict[str, int]]()


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the loop that the servers run on."""
    return "asyncio"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m`, and unless a file is named, marked tests are deselected; `.ci/run` runs them all."""
    if config.option.markexpr or config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    left = {name: [item for item in items if item.get_closest_marker(name)] for name in MARKERS}
    gone = {item for found in left.values() for item in found}
    if gone:
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=list(gone))
    config.stash[LEFT_OUT] = {name: len(found) for name, found in left.items()}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that started it what it left out."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a worker left out; each leaves out the same."""
    left = getattr(node, "workeroutput", {}).get("left_out")
    if left:
        node.config.stash[LEFT_OUT] = left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what a plain run left out."""
    for name, count in config.stash.get(LEFT_OUT, {}).items():
        if count:
            tests = "test" if count == 1 else "tests"
            terminalreporter.write_line(f"left out: {count} {tests} that {MARKERS[name]}; run .ci/run")
