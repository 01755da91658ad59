"""Nothing outside the workspace is read or changed, by whatever path."""

from __future__ import annotations

import json
import os
import stat
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import InvalidInput, NotFound, PackhostError, ScopeDenied
from packhost.sandbox.paths import FileBroker

SECRET = b"outside the workspace"
Use = Callable[[FileBroker, str], object]

USES: dict[str, Use] = {
    "resolve for reading": lambda broker, path: broker.resolve(path, "read"),
    "resolve for writing": lambda broker, path: broker.resolve(path, "write"),
    "read": lambda broker, path: broker.read(path),
    "stat": lambda broker, path: broker.stat(path),
    "list": lambda broker, path: broker.list(path),
    "walk": lambda broker, path: broker.walk(path),
    "write": lambda broker, path: broker.write(path, b"gone"),
    "edit": lambda broker, path: broker.replace_if_unchanged(path, SECRET, b"gone"),
    "move from": lambda broker, path: broker.move(path, "taken"),
    "move to": lambda broker, path: broker.move("src/main.py", path),
    "delete": lambda broker, path: broker.delete(path, recursive=True),
    "make a folder": lambda broker, path: broker.make_directory(path),
}


def untouched(workspace: Path) -> bool:
    outside = workspace.parent / "outside"
    return (
        os.listdir(outside) == ["secret.txt"]
        and (outside / "secret.txt").read_bytes() == SECRET
        and (workspace / "src" / "main.py").exists()
        and (workspace / "link.txt").is_symlink()
        and stat.S_ISFIFO((workspace / "pipe").lstat().st_mode)
    )


def refused(broker: FileBroker, use: Use, path: str) -> bool:
    try:
        use(broker, path)
    except ScopeDenied as denied:
        return denied.data["layer"] == "root" and bool(denied.hint) and "\x00" not in denied.message
    return False


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_use_of_any_escape_leads_outside(
    broker: FileBroker, workspace: Path, escapes: list[str], use: Use
) -> None:
    assert [path for path in escapes if not refused(broker, use, path)] == []
    assert untouched(workspace)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_no_use_of_any_escape_leads_outside_without_privileges(
    broker: FileBroker, workspace: Path, escapes: list[str]
) -> None:
    for folder, _, _ in os.walk(workspace):
        os.chown(folder, 65534, 65534)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other threads do not matter: the child only checks
        child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        failed = [
            (name, path) for name, use in USES.items() for path in escapes if not refused(broker, use, path)
        ]
        broker.write("src/own.txt", b"allowed")
        os.write(writer, json.dumps(failed).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    assert json.loads(told or b'"the child failed"') == []
    assert untouched(workspace)
    assert (workspace / "src" / "own.txt").stat().st_uid == 65534


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("./src/main.py", "src/main.py"),
        ("src//main.py", "src/main.py"),
        ("src/./main.py", "src/main.py"),
        ("src/", "src"),
        ("././.", "."),
        ("./", "."),
    ],
)
def test_a_path_has_one_spelling_and_the_refusal_names_it(broker: FileBroker, path: str, plain: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        broker.resolve(path, "read")
    assert caught.value.hint == f"write it as `{plain}`"


@pytest.mark.parametrize("path", ["", "a" * 256, "é" * 128, "/".join(["d"] * 2100), "bad\udc80name"])
def test_a_path_that_names_nothing_possible_is_invalid_input(broker: FileBroker, path: str) -> None:
    with pytest.raises(InvalidInput):
        broker.resolve(path, "write")


def test_a_trailing_slash_after_a_link_does_not_follow_it(broker: FileBroker) -> None:
    with pytest.raises(PackhostError):
        broker.list("link-folder/")


def test_two_unicode_forms_are_two_names(broker: FileBroker, workspace: Path) -> None:
    composed, decomposed = "caf\u00e9.txt", "cafe\u0301.txt"
    (workspace / decomposed).write_text("decomposed")
    if (workspace / composed).exists():
        pytest.skip("this file system takes both forms for one")
    assert broker.read(decomposed) == b"decomposed"
    with pytest.raises(NotFound):
        broker.read(composed)


def test_a_missing_path_under_a_missing_folder_is_not_found(broker: FileBroker) -> None:
    with pytest.raises(NotFound):
        broker.read("/".join(["d"] * 1500))


def test_a_file_used_as_a_folder_is_told_apart_from_a_missing_one(broker: FileBroker) -> None:
    with pytest.raises(PackhostError, match="must be a folder"):
        broker.read("src/main.py/more")


def test_a_missing_path_names_its_neighbour(broker: FileBroker) -> None:
    with pytest.raises(NotFound) as caught:
        broker.read("src/mian.py")
    assert caught.value.hint == "did you mean `src/main.py`?"


def test_a_descriptor_device_is_refused_as_a_device(broker: FileBroker, workspace: Path) -> None:
    try:
        os.mknod(workspace / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")
    with pytest.raises(ScopeDenied, match="not a regular file"):
        broker.read("null")
    with pytest.raises(ScopeDenied, match="not a regular file"):
        broker.write("null", b"")


def test_a_folder_that_turns_into_a_link_again_and_again_never_leads_outside(
    broker: FileBroker, workspace: Path
) -> None:
    outside = workspace.parent / "outside"
    real, link, name = workspace / "real", workspace / "to-outside", workspace / "swap"
    real.mkdir()
    (real / "secret.txt").write_bytes(b"inside")
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            real.rename(name)
            name.rename(real)
            link.rename(name)
            name.rename(link)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        for _ in range(2000):
            for use in (
                lambda: seen.add(broker.read("swap/secret.txt")),
                lambda: broker.write("swap/new", b"x", create_parents=False),
            ):
                try:
                    use()
                except PackhostError:
                    continue
    finally:
        stop.set()
        swapper.join()
    assert seen <= {b"inside"}
    assert os.listdir(outside) == ["secret.txt"]


def test_a_file_that_turns_into_a_link_again_and_again_is_never_followed(
    broker: FileBroker, workspace: Path
) -> None:
    secret = workspace.parent / "outside" / "secret.txt"
    name, spare = workspace / "target.txt", workspace / "spare"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            spare.symlink_to(secret)
            spare.rename(name)
            spare.write_bytes(b"inside")
            spare.rename(name)

    name.write_bytes(b"inside")
    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        for _ in range(2000):
            try:
                seen.add(broker.read("target.txt"))
                broker.write("target.txt", b"inside")
            except PackhostError:
                continue
    finally:
        stop.set()
        swapper.join()
    assert seen <= {b"inside", b""}
    assert secret.read_bytes() == SECRET
