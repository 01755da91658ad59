"""System calls made for a process are held to every layer, and to what the broker refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhost.rules.scopes import Layer, PathScope, compile_glob, parse_scope, path_use
from packhost.sandbox.direct import DirectFiles

PARTS = st.sampled_from(["src", "a", ".hidden", "a.py", "b.txt", "*", "**", "*.py", ".*", "deep"])
PATHS = ("a.py", "b.txt", "src", "src/a.py", "src/.hidden/a.py", "src/deep/b.txt", ".hidden/a.py", "src/deep")


def direct(root: int, *layers: Sequence[str]) -> DirectFiles:
    return DirectFiles(
        root, [Layer(str(n), tuple(parse_scope(line) for line in lines)) for n, lines in enumerate(layers)]
    )


@st.composite
def globs(draw: st.DrawFn) -> str:
    return "/".join(draw(st.lists(PARTS, min_size=1, max_size=3)))


@pytest.fixture
def tree(workspace: Path) -> Path:
    for path in PATHS:
        full = workspace / path
        if "." in full.name:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(path)
    return workspace


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layers=st.lists(
        st.lists(st.tuples(st.sampled_from(["read", "write"]), globs()), max_size=3), min_size=1, max_size=3
    )
)
def test_an_opening_passes_where_every_layer_lets_it_and_nowhere_else(
    tree: Path, root: int, layers: list[list[tuple[str, str]]]
) -> None:
    made = []
    for number, layer in enumerate(layers):
        scopes = tuple(PathScope("read" if a == "read" else "write", compile_glob(g).text) for a, g in layer)
        made.append(Layer(str(number), scopes))
    files = DirectFiles(root, made)
    for path in PATHS:
        for flags, accesses in (
            (os.O_RDONLY, ("read",)),
            (os.O_WRONLY, ("write",)),
            (os.O_RDWR, ("read", "write")),
        ):
            allowed = all(path_use(access, path, made) is None for access in accesses)  # type: ignore[arg-type]
            try:
                os.close(files.open(path, flags, 0))
                opened = True
            except IsADirectoryError:
                opened = True
            except PermissionError:
                opened = False
            assert opened is allowed, (path, flags)


USES: dict[str, Callable[[DirectFiles, str], object]] = {
    "open": lambda files, path: os.close(files.open(path, os.O_RDONLY, 0)),
    "open to write": lambda files, path: os.close(files.open(path, os.O_WRONLY, 0)),
    "create": lambda files, path: os.close(files.open(path, os.O_WRONLY | os.O_CREAT, 0o600)),
    "truncate": lambda files, path: files.truncate(path, 0),
    "rename from": lambda files, path: files.rename(path, "taken"),
    "mode": lambda files, path: files.change_mode(path, 0o600),
    "times": lambda files, path: files.change_times(path, None),
}
SPECIAL = (
    "link.txt",
    "link-folder/secret.txt",
    "hard.txt",
    "pipe",
    "src/up/outside/secret.txt",
    "proc/etc/passwd",
)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("path", SPECIAL)
def test_nothing_that_may_lie_elsewhere_is_used(
    workspace: Path, outside: Path, root: int, use: Callable[[DirectFiles, str], object], path: str
) -> None:
    with pytest.raises(OSError, match="Errno") as caught:
        use(direct(root, ("path read **", "path write **")), path)
    assert caught.value.errno in (errno.EACCES, errno.ELOOP, errno.EXDEV)
    assert (outside / "secret.txt").read_bytes() == b"outside the workspace"


@pytest.mark.parametrize(
    "path",
    [
        "packhost.yaml",
        "src/packhost.lock",
        ".claude/x",
        "src/.git",
        "src/.git/hooks/pre-commit",
        "SRC/.MCP.JSON",
    ],
)
def test_no_protected_name_is_made_by_any_call(workspace: Path, root: int, path: str) -> None:
    files = direct(root, ("path read **", "path write **"))
    (workspace / "SRC").mkdir(exist_ok=True)
    for use in (
        lambda: files.open(path, os.O_WRONLY | os.O_CREAT, 0o600),
        lambda: files.make_folder(path, 0o700),
        lambda: files.rename("src/main.py", path),
        lambda: files.rename("src/deep", path),
    ):
        with pytest.raises(PermissionError):
            use()


def test_a_folder_that_holds_something_uncovered_is_not_moved(workspace: Path, root: int) -> None:
    files = direct(root, ("path read **", "path write src", "path write src/main.py", "path write moved/**"))
    with pytest.raises(PermissionError):
        files.rename("src", "moved")
    assert (workspace / "src" / "deep").is_dir()


def test_names_may_be_taken_away_whatever_they_lead_to(workspace: Path, outside: Path, root: int) -> None:
    files = direct(root, ("path write **",))
    for name in ("link.txt", "hard.txt", "pipe"):
        files.remove_file(name)
    assert (outside / "secret.txt").exists()
