"""Landlock, capabilities and limits by themselves, each in a process that ends with it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.sandbox import capabilities, landlock, limits
from packhost.sandbox.landlock import MAX_LAYERS, READ, PathRule, restrict
from packhost.sandbox.probe import Proof
from packhost.sandbox.programs import closure

pytestmark = pytest.mark.skipif(landlock.detect() == 0, reason="this kernel has no Landlock")
ABI = landlock.detect()
LIBRARIES = ["/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix]


def apart(work: Callable[[], object]) -> object:
    """What `work` returns, or the name of what it raises, in a process of its own."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a test runner may have threads
        pid = os.fork()
    if pid == 0:
        try:
            try:
                result: object = work()
            except Exception as error:
                result = type(error).__name__
            os.write(writing, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(said)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Folders `a`, `b` and `a/inner`, each with a file `f`."""
    for name in ("a", "b", "a/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    return tmp_path


def readable(base: Path) -> list[str]:
    found = []
    for name in ("a", "b", "a/inner"):
        with contextlib.suppress(PermissionError):
            found.append((base / name / "f").read_text())
    return found


def test_a_use_has_to_lie_inside_every_ruleset(folders: Path) -> None:
    def work() -> list[str]:
        first = [PathRule(str(folders / "a"), READ), PathRule(str(folders / "b"), READ)]
        second = [PathRule(str(folders / "a" / "inner"), READ), PathRule(str(folders / "b"), READ)]
        third = [PathRule(str(folders / "a"), READ)]
        restrict([first, second, third], ABI)
        return readable(folders)

    assert apart(work) == ["a/inner"]


def test_a_later_restriction_cannot_widen(folders: Path) -> None:
    def work() -> list[str]:
        restrict([[PathRule(str(folders / "b"), READ)]], ABI)
        restrict([[PathRule("/", READ)]], ABI)
        return readable(folders)

    assert apart(work) == ["b"]


def test_a_rule_for_a_file_and_one_for_a_missing_path(folders: Path) -> None:
    def work() -> list[str]:
        rules = [PathRule(str(folders / "a" / "f"), READ), PathRule(str(folders / "missing" / "f"), READ)]
        restrict([rules], ABI)
        return readable(folders)

    assert apart(work) == ["a"]


@pytest.mark.parametrize("count", [0, MAX_LAYERS + 1])
def test_too_many_rulesets_or_none_are_an_error_and_not_a_weaker_restriction(count: int) -> None:
    assert apart(lambda: restrict([[]] * count, ABI)) == "ValueError"


def test_as_many_rulesets_as_the_kernel_stacks_are_possible(folders: Path) -> None:
    def work() -> list[str]:
        restrict([[PathRule(str(folders / "a"), READ)]] * MAX_LAYERS, ABI)
        return readable(folders)

    assert apart(work) == ["a", "a/inner"]


def test_tcp_is_refused_by_landlock_itself() -> None:
    if ABI < 4:
        pytest.skip("this kernel's Landlock does not know TCP")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def work() -> str:
            "localhost".encode("idna")  # or its codec would be looked for when nothing can be read any more
            restrict([[]], ABI)
            socket.create_connection(("127.0.0.1", port)).close()
            return "connected"

        assert apart(work) == "PermissionError"


@pytest.mark.parametrize("abi", [5, ABI])
def test_signals_are_kept_inside_from_abi_six_on(abi: int) -> None:
    def work() -> str:
        restrict([[]], abi)
        os.kill(os.getppid(), 0)
        return "signalled"

    assert apart(work) == ("PermissionError" if min(abi, ABI) >= 6 else "signalled")


def test_no_capability_is_left_and_none_comes_back_by_a_program() -> None:
    def work() -> list[object]:
        capabilities.drop_all()
        status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return [
            list(capabilities.held()),
            *(int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")),
        ]

    assert apart(work) == [[0, 0, 0], 0, 0, 0, 0]


def test_limits_are_lowered_and_never_raised() -> None:
    def work() -> list[object]:
        import resource

        for asked in (
            limits.Limits(memory=1 << 29, files=64, cpu=7),
            limits.Limits(memory=1 << 40, files=1 << 20, cpu=100),
        ):
            limits.apply(asked)
            limits.apply_to_descriptors(asked)
        names = ("RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_CORE")
        return [list(resource.getrlimit(getattr(resource, name))) for name in names]

    assert apart(work) == [[1 << 29] * 2, [64, 64], [7, 7], [0, 0]]


# --- the proof ---------------------------------------------------------------------------------------

PROVE = """
import dataclasses, json, sys
from packhost.sandbox import probe, seccomp
libraries, abi, hole = json.loads(sys.argv[1])
if hole:  # a filter that forgets one call
    rules = seccomp._rules
    seccomp._rules = lambda wanted: {k: v for k, v in rules(wanted).items() if k != hole}
print(json.dumps(dataclasses.asdict(probe.prove(libraries, abi))))
"""


def proved(abi: int | None, hole: str = "", libraries: list[str] = LIBRARIES) -> Proof:
    arguments = [sys.executable, "-c", PROVE, json.dumps([libraries, abi, hole])]
    return Proof(**json.loads(subprocess.run(arguments, capture_output=True, check=True).stdout))


@pytest.mark.parametrize(
    ("abi", "level"),
    [(0, "advisory"), (1, "partial"), (3, "partial"), (5, "partial"), (6, "kernel"), (None, "kernel")],
)
def test_each_landlock_gives_its_level(abi: int | None, level: str) -> None:
    if (abi or 6) > ABI:
        pytest.skip("this kernel's Landlock is older")
    proof = proved(abi)
    assert (proof.level, proof.abi) == (level, ABI if abi is None else abi)
    assert proof.detail


@pytest.mark.parametrize("hole", ["socket", "io_uring_setup", "chmod", "clone"])
def test_one_thing_that_goes_through_costs_the_claim(hole: str) -> None:
    switch = Path("/proc/sys/kernel/io_uring_disabled")
    if hole == "io_uring_setup" and switch.exists() and switch.read_text().strip() != "0":
        pytest.skip("io_uring is switched off here")
    proof = proved(None, hole)
    assert proof.level == "advisory"
    assert "not refused here" in proof.detail


def test_a_filter_that_lets_files_through_is_not_what_refuses_them() -> None:
    proof = proved(None, libraries=[*LIBRARIES, "/"])
    assert proof.level == "advisory"
    assert "listing the root" in proof.detail


# --- programs ----------------------------------------------------------------------------------------


def test_a_programs_loader_and_interpreter_belong_to_it(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env sh\necho\n")
    found = closure(str(script))
    assert found[0] == str(script)
    assert os.path.realpath("/usr/bin/env") in found
    assert os.path.realpath("/bin/sh") in found
    assert any("ld-linux" in path or "ld-musl" in path for path in found)


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02" + b"\xff" * 300, b"#!", b"#!" + b"x" * 300]
)
def test_a_broken_program_is_only_itself(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(content)
    assert closure(str(broken))[0] == str(broken)
