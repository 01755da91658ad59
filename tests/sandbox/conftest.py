"""A workspace with everything in it that leads outside, and brokers onto it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox.openat2 import Openat2, Opener, Walk
from packhost.sandbox.paths import FileBroker

SECRET = b"outside the workspace"
EVERYTHING = ("path read **", "path write **")
MakeBroker = Callable[..., FileBroker]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, with a secret in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path) -> Path:
    """The root of a workspace in which links, second names and special files lie."""
    root = tmp_path / "workspace"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "src" / "main.py").write_text("print('hello')\n")
    (root / "src" / "deep" / "data.json").write_text("{}")
    (root / "docs" / "guide.md").write_text("# guide\n")
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "inner-link.txt").symlink_to("src/main.py")
    (root / "link-folder").symlink_to(outside)
    (root / "src" / "up").symlink_to("../..")
    (root / "dangling").symlink_to("nothing-here")
    (root / "proc").symlink_to("/proc/self/root")
    os.link(outside / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture(params=["openat2", "walk"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Both ways of opening a path."""
    if request.param == "walk":
        return Walk()
    fast = Openat2()
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fast.probe(here, ".")
    except OSError:
        pytest.skip("this system has no openat2")
    finally:
        os.close(here)
    return fast


@pytest.fixture
def root(workspace: Path) -> Iterator[int]:
    """The workspace's descriptor."""
    descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def make_broker(root: int, opener: Opener) -> MakeBroker:
    """Makes a broker from lines of scopes, a tuple a layer."""

    def make(*layers: tuple[str, ...]) -> FileBroker:
        return FileBroker(
            root,
            [
                Layer(f"layer {number}", tuple(parse_scope(line) for line in lines))
                for number, lines in enumerate(layers or (EVERYTHING,))
            ],
            opener=opener,
        )

    return make


@pytest.fixture
def broker(make_broker: MakeBroker) -> FileBroker:
    """A broker that may read and write everything."""
    return make_broker()


@pytest.fixture
def escapes() -> list[str]:
    """Paths that lead out of the workspace, or would on some system."""
    return [
        "..",
        "../outside/secret.txt",
        "src/../../outside/secret.txt",
        "src/..",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/root/etc/passwd",
        "proc/etc/passwd",
        "proc",
        "link.txt",
        "inner-link.txt",
        "link-folder/secret.txt",
        "link-folder",
        "src/up/outside/secret.txt",
        "dangling",
        "hard.txt",
        "pipe",
        "src/main.py\x00.txt",
        "\x00",
        "src\n/main.py",
        "..\\outside\\secret.txt",
        "\\\\server\\share",
        "src\\main.py",
        "C:/Windows",
        "c:secret.txt",
        "~",
        "~/.ssh/id_ed25519",
    ]
