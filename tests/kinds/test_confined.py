"""How a confined call ends: by itself, by its deadline, by its limits, or because something else went."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from packhost.errors import PackhostError
from packhost.kinds import forked, forking, zygote
from packhost.kinds.base import Tool
from packhost.kinds.frames import SUPERVISED
from packhost.kinds.python import PythonKind
from packhost.kinds.setup import libraries
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox import landlock
from packhost.sandbox.level import Requirement, satisfies
from packhost.sandbox.paths import FileBroker
from packhost.sandbox.probe import Proof
from packhost.sandbox.syscalls import number

pytestmark = pytest.mark.anyio

MakeContext = Callable[..., Any]


@pytest.fixture
def make_context(context: Any, root: Path) -> MakeContext:
    """Makes a context with a layer for each tuple of scopes."""
    descriptor = context.files._root

    def make(*layers: tuple[str, ...]) -> Any:
        made = tuple(
            Layer(f"layer {number}", tuple(parse_scope(line) for line in lines))
            for number, lines in enumerate(layers)
        )
        return replace(context, files=FileBroker(descriptor, made), layers=made)

    return make


async def run(kind: PythonKind, tool: Tool, context: Any, **arguments: Any) -> Any:
    with anyio.fail_after(30):
        return await kind.run(tool, arguments, context)


async def code_of(kind: PythonKind, tool: Tool, context: Any) -> str:
    try:
        await run(kind, tool, context)
    except PackhostError as error:
        return error.code
    return "ok"


async def failure(kind: PythonKind, tool: Tool, context: Any, **arguments: Any) -> PackhostError:
    with pytest.raises(PackhostError) as caught:
        await run(kind, tool, context, **arguments)
    return caught.value


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.lowlevel.checkpoint()


def below(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


# --- deadlines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "10**10**8",
        "sum(range(10**12))",
        "max(range(10**12))",
        "__import__('re').match(r'(a+)+$', 'a' * 40 + 'b')",
        "__import__('time').sleep(600)",
        "__import__('threading').Lock().acquire() and __import__('threading').Event().wait()",
        "__import__('signal').pause()",
        "[__import__('threading').Thread(target=spin).start() for _ in range(4)]; spin()",
        "ignore(); spin()",
    ],
)
async def test_nothing_outlives_its_deadline(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path, body: str
) -> None:
    tool = make_tool(
        f"""
        import os, signal
        def spin():
            while True:
                try:
                    while True: pass
                except BaseException: pass
        def ignore():
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
        def handle(context, arguments):
            with open("pid", "w") as file: file.write(str(os.getpid()))
            os.rename("pid", "pid.txt")
            {body}
        """
    )
    context = make_context(("path write *", "path read *"))
    began = 0.0
    with anyio.move_on_after(20) as deadline:
        async with anyio.create_task_group() as group:
            group.start_soon(confined.run, tool, {}, context)
            await until((root / "pid.txt").exists)
            began = time.monotonic()
            group.cancel_scope.cancel()
    assert not deadline.cancelled_caught
    assert is_gone(int((root / "pid.txt").read_text()))
    assert time.monotonic() - began < 5


async def test_processor_time_is_limited_beside_the_deadline(
    confined: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool("def handle(context, arguments):\n    while True: pass", timeout=0.1)
    error = await failure(confined, tool, context)
    assert (error.code, "signal 9" in error.message) == ("EFFECTS_UNKNOWN", True), error.message


# --- memory and files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "x = []\n    while True: x.append(bytearray(1 << 20))",
        "x = [0] * (1 << 34)",
        "x = 'x' * (1 << 34)",
        "x = list(range(1 << 34))",
        "x = {n: str(n) for n in range(1 << 34)}",
        "import mmap; x = mmap.mmap(-1, 1 << 34)",
        "import mmap\n    x = []\n    while True: x += [mmap.mmap(-1, 1 << 26)]; x[-1].write(bytes(1 << 26))",
        "import threading, time\n    while True: threading.Thread(target=time.sleep, args=(600,)).start()",
        pytest.param(
            "x = []\n    while True: x = [x, x, list(x), bytearray(1 << 12)]", marks=pytest.mark.slow
        ),
    ],
)
async def test_memory_is_limited_and_the_host_goes_on(
    confined: PythonKind, make_tool: Any, context: Any, body: str
) -> None:
    tool = make_tool(f"def handle(context, arguments):\n    {body}")
    assert (await failure(confined, tool, context)).code == "TOOL_FAILED"
    assert await run(confined, make_tool("def handle(context, arguments): return 1"), context) == 1


@pytest.mark.parametrize(
    ("idempotent", "code"), [(True, "TOOL_FAILED"), (False, "EFFECTS_UNKNOWN")], ids=["safe", "with effects"]
)
async def test_a_stack_without_end_is_a_failure(
    confined: PythonKind, make_tool: Any, context: Any, idempotent: bool, code: str
) -> None:
    tool = make_tool(
        """
        import sys
        def handle(context, arguments):
            sys.setrecursionlimit(10**9)
            value = []
            for _ in range(10**6): value = [value]
            return repr(value)
        """,
        idempotent=idempotent,
    )
    assert (await failure(confined, tool, context)).code == code


async def test_a_file_does_not_grow_without_end(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path
) -> None:
    tool = make_tool(
        """
        def handle(context, arguments):
            with open("out/big", "wb") as file:
                file.truncate(1 << 40)
        """,
        scopes=("path write out/**",),
    )
    error = await failure(confined, tool, make_context(("path write out/**",)))
    assert "File too large" in error.message
    assert (root / "out" / "big").stat().st_size == 0


# --- the machine beneath -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("truncate", "b'a.txt', 2**64 - 5"),
        ("utimensat", "-100, b'a.txt', 2**64 - 4096, 0"),
        ("utimensat", "-100, b'a.txt', (ctypes.c_long * 4)(2**62, 0, 2**62, 0), 0"),
        ("mkdirat", "-100, b'a', 2**64 - 1"),
        ("openat", "-100, 2**64 - 4096, 0, 0"),
    ],
)
async def test_a_file_call_with_any_number_is_answered(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path, call: str, arguments: str
) -> None:
    (root / "a.txt").write_text("content")
    tool = make_tool(
        f"""
        import ctypes
        def handle(context, arguments):
            libc = ctypes.CDLL(None)
            given = [ctypes.c_ulong(x) if isinstance(x, int) else x for x in ({arguments},)]
            libc.syscall(ctypes.c_ulong(arguments["number"]), *given)
            return "answered"
        """
    )
    context = make_context(("path write *.txt", "path read *.txt"))
    assert await run(confined, tool, context, number=number(call, os.uname().machine)) == "answered"
    assert (root / "a.txt").read_text() == "content"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="these are calls of x86_64 processors alone")
@pytest.mark.parametrize(
    ("code", "meaning"),
    [("b814000000cd80c3", "a call of the 32-bit kind"), ("b8270000400f05c3", "a call of the x32 kind")],
)
async def test_a_call_of_another_architecture_ends_the_process(
    confined: PythonKind, make_tool: Any, context: Any, code: str, meaning: str
) -> None:
    tool = make_tool(
        f"""
        import ctypes, mmap
        def handle(context, arguments):
            memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            memory.write(bytes.fromhex("{code}"))
            at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            return ctypes.CFUNCTYPE(ctypes.c_int)(at)()
        """
    )
    error = await failure(confined, tool, context)
    assert f"signal {signal.SIGSYS.value}" in error.message, meaning


# --- programs ----------------------------------------------------------------------------------------


async def test_a_declared_program_runs_within_the_same_limits(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("outside")
    tool = make_tool(
        """
        import subprocess
        def sh(line):
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
            return [done.returncode == 0, done.stdout]
        def handle(context, arguments):
            return {
                "inside": sh("echo one > out/one; cat out/one"),
                "outside": sh(f"cat {arguments['secret']}"),
                "out of scope": sh("cat notes.txt"),
                "write out of scope": sh("echo x > new.txt"),
                "not declared": sh("id"),
                "network": sh("exec 3<>/dev/tcp/127.0.0.1/1"),
                "environment": sh("cat /proc/self/environ"),
            }
        """,
        scopes=("path write out/**", "path read out/**", "exec sh", "exec cat"),
    )
    everything = ("path write out/**", "path read out/**", "exec sh", "exec cat", "exec id")
    found = await run(confined, tool, make_context(everything, everything), secret=str(tmp_path / "secret"))
    assert found.pop("inside") == [True, "one\n"]
    assert {name: worked for name, (worked, _) in found.items()} == dict.fromkeys(found, False)
    assert (root / "out" / "one").read_text() == "one\n"
    assert not (root / "new.txt").exists()


async def test_a_program_that_one_layer_does_not_cover_does_not_run(
    confined: PythonKind, make_tool: Any, make_context: MakeContext
) -> None:
    tool = make_tool(
        "import subprocess\ndef handle(context, arguments): return subprocess.run(['id']).returncode",
        scopes=("exec id",),
    )
    assert await run(confined, tool, make_context(("exec id",), ("exec id",))) == 0
    error = await failure(confined, tool, make_context(("exec id",), ("exec cat",)))
    assert "PermissionError" in error.message


async def test_everything_that_a_program_started_is_gone_before_the_answer(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path
) -> None:
    tool = make_tool(
        """
        import os, subprocess
        def handle(context, arguments):
            subprocess.run(["sh", "-c", "(sleep 600 & echo $! > pids/a; (sleep 600 & echo $! > pids/b) &) &"])
            left = os.fork()
            if left == 0:
                if os.fork() == 0:
                    with open("pids/c", "w") as file: file.write(str(os.getpid()))
                    while True: pass
                os._exit(0)
            os.waitpid(left, 0)
            while not all(os.path.exists(f"pids/{n}") and os.path.getsize(f"pids/{n}") for n in "abc"):
                pass
            return True
        """,
        scopes=("path write pids/**", "path read pids/**", "exec sh", "exec sleep"),
    )
    scopes = ("path write pids/**", "path read pids/**", "exec sh", "exec sleep")
    assert await run(confined, tool, make_context(scopes)) is True
    pids = [int((root / "pids" / name).read_text()) for name in "abc"]
    assert [pid for pid in pids if not is_gone(pid)] == []


# --- the zygote --------------------------------------------------------------------------------------


def test_where_there_is_no_room_for_a_process_that_one_alone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(zygote.os, "fork", full)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pairs = [socket.socketpair() for _ in range(3)]
    with ours, theirs:
        socket.send_fds(ours, [SUPERVISED], [far.fileno() for _, far in pairs])
        for _, far in pairs:
            far.close()
        assert zygote._Zygote(theirs, Proof("kernel", 6, True, ""))._fork()
    for near, _ in pairs:
        with near:
            assert near.recv(1) == b""


@pytest.mark.parametrize(("idempotent", "code"), [(False, "EFFECTS_UNKNOWN"), (True, "TOOL_FAILED")])
async def test_a_zygote_that_dies_takes_its_call_along_and_is_replaced(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path, idempotent: bool, code: str
) -> None:
    tool = make_tool(
        """
        def handle(context, arguments):
            open("mark.txt", "w").close()
            while True: pass
        """,
        idempotent=idempotent,
    )
    outcomes: list[PackhostError] = []

    async def call() -> None:
        outcomes.append(await failure(confined, tool, make_context(("path write *",))))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await until((root / "mark.txt").exists)
        first = confined._zygote.pid
        (running,) = [pid for pid in below(first) if Path(f"/proc/{pid}/cwd").readlink() == root]
        os.kill(first, signal.SIGKILL)
    assert outcomes[0].code == code
    await until(lambda: is_gone(running))
    assert await run(confined, make_tool("def handle(context, arguments): return 1"), make_context()) == 1
    assert confined._zygote.pid != first


async def test_a_zygote_that_died_while_nobody_called_is_not_noticed(
    confined: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool("def handle(context, arguments): return 1")
    assert await run(confined, tool, context) == 1
    os.kill(confined._zygote.pid, signal.SIGKILL)
    assert await run(confined, tool, context) == 1


async def test_processes_hold_no_environment_and_no_descriptor_of_the_host(
    confined: PythonKind,
    make_tool: Any,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    root: Path,
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    monkeypatch.setenv("DECLARED", "declared")
    leaked = os.open(root / "notes.txt", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    tool = make_tool(
        """
        import os
        def handle(context, arguments):
            open("mark.txt", "w").close()
            while not os.path.exists("go.txt"): pass
            return dict(os.environ)
        """,
        scopes=("env DECLARED", "env HOST_SECRET"),
    )
    context = make_context(
        ("path write *", "env DECLARED", "env HOST_SECRET"), ("path write *", "env DECLARED")
    )
    found: list[Any] = []

    async def call() -> None:
        found.append(await run(confined, tool, context))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await until((root / "mark.txt").exists)
        zygote = confined._zygote.pid
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (zygote, *below(zygote))]
        files = [
            os.readlink(entry)
            for pid in (zygote, *below(zygote))
            for entry in Path(f"/proc/{pid}/fd").iterdir()
        ]
        (root / "go.txt").touch()
    os.close(leaked)
    assert set(environments) == {b"LANG=C.UTF-8\0"}
    assert str(root / "notes.txt") not in files
    assert found == [{"LANG": "C.UTF-8", "DECLARED": "declared"}]


async def test_a_process_that_cannot_be_confined_runs_nothing(
    confined: PythonKind,
    make_tool: Any,
    make_context: MakeContext,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = forked.setup_of
    monkeypatch.setattr(
        forked, "setup_of", lambda *a, **k: original(*a, **k) | {"limits": {"memory": "much"}}
    )
    tool = make_tool("open('mark.txt', 'w').close()\ndef handle(context, arguments): return 1")
    error = await failure(confined, tool, make_context(("path write *",)))
    assert error.code == "ENFORCEMENT_UNAVAILABLE"
    assert not (root / "mark.txt").exists()


HOST = """
import anyio, json, sys
sys.path.insert(0, sys.argv[1])
import escape_attempts as e
from pathlib import Path
from packhost.kinds.python import PythonKind
from packhost.kinds.setup import libraries
from packhost.sandbox import landlock
from packhost.sandbox.level import Requirement, satisfies
from packhost.sandbox.paths import FileBroker
import os
root, pack = Path(sys.argv[2]), Path(sys.argv[3])
scopes = ("path write pids/**", "path read pids/**", "exec sh", "exec sleep")
source = '''
import os, subprocess
def handle(context, arguments):
    subprocess.run(["sh", "-c", "(sleep 600 & echo $! > pids/a) &"])
    open("pids/b", "w").write(str(os.getpid()) + chr(10))
    os.rename("pids/b", "pids/c")
    while True: pass
'''
layers = e.layers_of(*scopes)
context = e.Context(FileBroker(os.open(root, os.O_RDONLY), layers), layers)
async def main():
    kind = PythonKind(root)
    print(kind._zygote and kind.enforcement(e.tool_of(pack, source, scopes)), kind._zygote.pid, flush=True)
    await kind.run(e.tool_of(pack, source, scopes), {}, context)
anyio.run(main)
"""


@pytest.mark.skipif(landlock.detect() < landlock.SCOPES, reason="this kernel does not enforce everything")
async def test_nothing_is_left_when_the_host_is_killed(root: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", HOST, str(Path(__file__).parent), str(root), str(tmp_path / "pack2")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        try:
            level, zygote = host.stdout.readline().split()
            told = [root / "pids" / name for name in "ac"]
            await until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in told))
            pids = [int(zygote), *(int(path.read_text()) for path in told)]
            assert [is_gone(pid) for pid in pids] == [False] * 3
        finally:
            host.kill()
    assert level == "kernel"
    await until(lambda: all(map(is_gone, pids)))


# --- trusted packs -----------------------------------------------------------------------------------

COUNTING = """
import os
calls = []
def handle(context, arguments):
    calls.append(1)
    if arguments.get("die"): os._exit(9)
    if arguments.get("raise"): raise ValueError
    try: read = open("notes.txt").read()
    except OSError: read = None
    return [len(calls), os.getpid(), read, context.call_id]
"""


@pytest.fixture
def trusted(make_tool: Any) -> Tool:
    """A tool of a pack that the workspace trusts."""
    tool = make_tool(COUNTING)
    return replace(tool, pack=replace(tool.pack, trusted=True))


async def test_a_trusted_pack_keeps_its_process_for_the_same_scopes(
    confined: PythonKind, trusted: Tool, make_context: MakeContext
) -> None:
    reading, blind = make_context(("path read *",)), make_context(("path read x",))
    first, second = [await run(confined, trusted, reading) for _ in range(2)]
    other = await run(confined, trusted, blind)
    assert (first[0], second[0], other[0]) == (1, 2, 1)
    assert first[1] == second[1] != other[1]
    assert (first[2], other[2]) == ("some notes", None)


async def test_a_trusted_process_that_ends_or_fails_is_not_used_again(
    confined: PythonKind, trusted: Tool, make_context: MakeContext
) -> None:
    context = make_context(("path read *",))
    for arguments in ({"die": True}, {"raise": True}):
        assert (await run(confined, trusted, context))[0] == 1
        assert (await failure(confined, trusted, context, **arguments)).code == "TOOL_FAILED"
    count, pid, *_ = await run(confined, trusted, context)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: is_gone(pid))
    assert (count, (await run(confined, trusted, context))[0]) == (1, 1)


async def test_a_trusted_process_stands_still_between_its_calls(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path
) -> None:
    tool = make_tool(
        """
        import os, threading
        def count():
            while True: box.append(1)
        box = []
        def handle(context, arguments):
            if not box: threading.Thread(target=count, daemon=True).start()
            while not box: pass
            return os.getpid()
        """
    )
    tool = replace(tool, pack=replace(tool.pack, trusted=True))
    context = make_context(("path read *",))
    pid = await run(confined, tool, context)

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    await until(lambda: state() == "T")
    assert await run(confined, tool, context) == pid
    await until(lambda: state() == "T")


async def test_calls_at_once_get_processes_of_their_own(
    confined: PythonKind, trusted: Tool, make_context: MakeContext
) -> None:
    context = make_context(("path read *",))
    pids: list[int] = []

    async def one() -> None:
        pids.append((await run(confined, trusted, context))[1])

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(one)
    assert len(set(pids)) == 12
    assert sum(map(len, confined._forked._idle.values())) == forked.MAX_IDLE


async def test_a_hundred_calls_at_once_are_all_answered(
    confined: PythonKind, make_tool: Any, make_context: MakeContext
) -> None:
    tool = make_tool(
        """
        def handle(context, arguments):
            return [arguments["number"], open("notes.txt").read()]
        """
    )
    context = make_context(("path read *",))
    results: dict[int, Any] = {}

    async def one(number: int) -> None:
        results[number] = await run(confined, tool, context, number=number)

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, number)
    assert results == {number: [number, "some notes"] for number in range(100)}


# --- folders -----------------------------------------------------------------------------------------


async def test_declared_folders_are_made_and_the_first_is_the_scratch_folder(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path
) -> None:
    scopes = ("path write only/**", "path write made/deep/**", "path read made/**")
    tool = make_tool(
        """
        import os, tempfile
        def handle(context, arguments): return [os.listdir("made/deep"), tempfile.gettempdir()]
        """,
        scopes=scopes,
    )
    assert await run(confined, tool, make_context(scopes)) == [[], str(root / "made" / "deep")]
    assert (root / "only").is_dir()


async def test_without_a_folder_to_write_there_is_no_scratch_folder(
    confined: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool("import tempfile\ndef handle(context, arguments): return tempfile.gettempdir()")
    assert "FileNotFoundError" in (await failure(confined, tool, context)).message


async def test_globs_that_no_kernel_rule_could_express_hold_for_plain_opens(
    confined: PythonKind, make_tool: Any, make_context: MakeContext, root: Path
) -> None:
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("a.py", "a.txt", "deep/b.py", ".hidden.py"):
        (root / "src" / name).write_text(name)
    tool = make_tool(
        """
        import pathlib
        def attempt(use):
            try: use()
            except OSError: return False
            return True
        def handle(context, arguments):
            return {
                f"{mode} {name}": attempt(lambda: open(f"src/{name}", mode).close())
                for mode in ("r", "r+", "a") for name in ("a.py", "a.txt", "deep/b.py", ".hidden.py")
            }
        """
    )
    context = make_context(
        ("path read src/**", "path write src/**"), ("path read src/**/*.py", "path write src/*.py")
    )
    found = await run(confined, tool, context)
    assert {name for name, worked in found.items() if worked} == {
        *(f"r {name}" for name in ("a.py", "deep/b.py", ".hidden.py")),
        *(f"{mode} {name}" for mode in ("r+", "a") for name in ("a.py", ".hidden.py")),
    }


# --- levels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("abi", "level", "satisfied"),
    [
        (0, "advisory", ["advisory"]),
        (1, "partial", ["partial", "advisory"]),
        (3, "partial", ["partial", "advisory"]),
        (5, "partial", ["partial", "advisory"]),
        (None, "kernel", ["kernel", "partial", "advisory"]),
    ],
)
async def test_a_level_is_what_was_proved_and_a_requirement_above_it_fails_closed(
    root: Path, make_tool: Any, abi: int | None, level: str, satisfied: list[str]
) -> None:
    if landlock.detect() < (landlock.SCOPES if abi is None else abi):
        pytest.skip("this kernel's Landlock is older")
    kind = PythonKind(root, abi=abi)
    requirements: list[Requirement] = ["kernel", "partial", "advisory"]
    try:
        found = kind.enforcement(make_tool())
        assert found == level
        assert [one for one in requirements if satisfies(found, one)] == satisfied
        assert kind.enforcement(make_tool(shipped=True)) == "host"
    finally:
        await kind.close()


async def test_a_level_that_was_lost_since_refuses_the_call(
    confined: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool("def handle(context, arguments): return 1")
    assert await run(confined, tool, context) == 1
    zygote = confined._zygote
    zygote._abi = 3  # as if the kernel under a restarted zygote were another
    os.kill(zygote.pid, signal.SIGKILL)
    with anyio.fail_after(20):
        # what was forked before may still serve one call, at the level that it has
        while (code := await code_of(confined, tool, context)) in ("ok", "TOOL_FAILED"):
            await anyio.lowlevel.checkpoint()
    assert code == "ENFORCEMENT_UNAVAILABLE"


async def test_where_the_host_cannot_answer_file_calls_nothing_of_the_workspace_is_granted(
    root: Path, make_tool: Any, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    if landlock.detect() < landlock.SCOPES:
        pytest.skip("this kernel does not enforce everything")
    monkeypatch.setattr(forking, "_readable", lambda pid: False)
    kind = PythonKind(root)
    tool = make_tool(
        """
        import os
        def attempt(use):
            try: use()
            except OSError: return False
            return True
        def handle(context, arguments):
            uses = (lambda: open("notes.txt"), lambda: open("new.txt", "w"), lambda: os.listdir("."),
                    lambda: os.chmod("notes.txt", 0o600), lambda: os.truncate("notes.txt", 0),
                    lambda: os.unlink("notes.txt"))
            return [list(map(attempt, uses)), context.files.read("notes.txt").decode()]
        """
    )
    try:
        assert kind.enforcement(tool) == "kernel"
        assert await run(kind, tool, make_context(("path read *", "path write *"))) == [
            [False] * 6,
            "some notes",
        ]
    finally:
        await kind.close()


@pytest.mark.parametrize("where", ["root", "inside", "beside"])
def test_the_import_path_does_not_open_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    root = tmp_path / "work"
    paths = {"root": root, "inside": root / "src", "beside": tmp_path / "other"}
    for path in paths.values():
        path.mkdir(exist_ok=True)
    monkeypatch.setattr(
        sys, "path", [*sys.path, str(paths[where]), str(tmp_path), os.path.expanduser("~"), "/"]
    )
    found = libraries(root)
    assert [path for path in found if path.startswith(str(tmp_path))] == (
        [str(paths[where])] if where == "beside" else []
    )
    assert not {"/", os.path.expanduser("~")} & set(found)
    assert os.path.dirname(os.__file__).startswith(found)
