"""What every test may use, and how tests that need real parts are left out of a plain run."""

from __future__ import annotations

import pytest

LEFT_OUT = pytest.StashKey[int]()


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the loop that the servers run on."""
    return "asyncio"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m`, tests marked `real` are deselected: what they need is more than Python."""
    if config.option.markexpr:
        return
    real = [item for item in items if item.get_closest_marker("real")]
    if real:
        items[:] = [item for item in items if item not in real]
        config.hook.pytest_deselected(items=real)
    config.stash[LEFT_OUT] = len(real)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what a plain run left out."""
    if count := config.stash.get(LEFT_OUT, 0):
        tests = "test" if count == 1 else "tests"
        terminalreporter.write_line(f"left out: {count} {tests} that need real parts; run .ci/run")
