"""A pack from elsewhere runs in a process of its own and cannot harm the host by what it sends."""

from __future__ import annotations

import logging
import os
import py_compile
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from packhost.errors import PackhostError
from packhost.kinds import worker
from packhost.kinds.frames import encode
from packhost.kinds.python import PythonKind

pytestmark = pytest.mark.anyio


async def run(kind: PythonKind, tool: Any, context: Any, **arguments: Any) -> Any:
    with anyio.fail_after(30):
        return await kind.run(tool, arguments, context)


async def failure(kind: PythonKind, tool: Any, context: Any, **arguments: Any) -> PackhostError:
    with pytest.raises(PackhostError) as caught:
        await run(kind, tool, context, **arguments)
    return caught.value


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


async def until(condition: Any) -> None:
    with anyio.fail_after(10):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_a_handler_gets_its_arguments_and_returns_json(
    kind: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool(
        "def handle(context, arguments): return {'got': arguments, 'config': dict(context.config)}"
    )
    assert await run(kind, tool, context, text="\u00e9\u4f60") == {
        "got": {"text": "\u00e9\u4f60"},
        "config": {"greeting": "hello"},
    }


async def test_a_handler_may_be_async_and_use_other_modules_of_its_pack(
    kind: PythonKind, make_tool: Any, context: Any, tmp_path: Path
) -> None:
    tool = make_tool(
        """
        import asyncio
        from inner.helper import double
        async def handle(context, arguments):
            await asyncio.sleep(0)
            return double(arguments["n"])
        """
    )
    (tmp_path / "pack" / "inner").mkdir()
    (tmp_path / "pack" / "inner" / "helper.py").write_text("def double(n): return 2 * n")
    assert await run(kind, tool, context, n=21) == 42


async def test_it_knows_who_calls(kind: PythonKind, make_tool: Any, context: Any) -> None:
    tool = make_tool(
        """
        def handle(context, arguments):
            return [context.tool, context.call_id, context.run_id, context.session_id, context.principal,
                    context.client, context.host]
        """
    )
    expected = ["pack:tool", "call_1", "run_1", "session", "somebody", "a client", None]
    assert await run(kind, tool, context) == expected


async def test_it_gets_no_environment_but_what_it_declares(
    plain: PythonKind, make_tool: Any, context: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("UNWANTED", "secret")
    tool = make_tool(
        """
        import os, sys
        def handle(context, arguments):
            return {
                "environment": dict(os.environ),
                "folder": os.getcwd(),
                "written": sys.dont_write_bytecode,
                "open": sorted(int(number) for number in os.listdir("/proc/self/fd")),
                "group": os.getpgid(0) == os.getpid(),
            }
        """,
        scopes=("env WANTED", "env MISSING"),
    )
    found = await run(plain, tool, context)
    assert found["environment"].pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"
    assert found["environment"] == {"LANG": "C.UTF-8", "WANTED": "yes"}
    assert found["folder"] == str(root)
    assert found["written"] is True
    assert found["group"] is True
    assert len(found["open"]) <= 5  # input, output, errors, the socket, and the listing itself


async def test_compiled_files_in_a_pack_are_neither_trusted_nor_written(
    kind: PythonKind, make_tool: Any, context: Any, tmp_path: Path
) -> None:
    pack = tmp_path / "pack"
    tool = make_tool("def handle(context, arguments): return 'compiled'")
    py_compile.compile(
        str(pack / "tools.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert list((pack / "__pycache__").iterdir())
    (pack / "tools.py").write_text("import helper\ndef handle(context, arguments): return 'source'")
    (pack / "helper.py").write_text("")
    assert await run(kind, tool, context) == "source"
    assert len(list((pack / "__pycache__").iterdir())) == 1


async def test_files_go_through_the_host_s_broker(
    kind: PythonKind, make_tool: Any, context: Any, root: Path
) -> None:
    tool = make_tool(
        """
        def handle(context, arguments):
            files = context.files
            files.write("new.txt", b"abc" * 3_000_000)
            files.write("more.txt", b"one")
            files.replace_if_unchanged("more.txt", b"one", b"two")
            files.move("more.txt", "moved.txt")
            entry = files.stat("moved.txt")
            size = len(files.read("new.txt"))
            part = files.read("new.txt", offset=1, limit=2).decode()
            files.delete("new.txt")
            return [size, part, entry.type, [e.path for e in files.list(".")],
                    [f.path for f in files.walk(".", glob="*.txt").files]]
        """
    )
    assert await run(kind, tool, context) == [
        9_000_000,
        "bc",
        "file",
        ["moved.txt", "notes.txt"],
        ["moved.txt", "notes.txt"],
    ]
    assert (root / "moved.txt").read_bytes() == b"two"


async def test_a_refusal_of_the_broker_reaches_the_handler_and_then_the_caller_whole(
    kind: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool(
        """
        from packhost.errors import NotFound, ScopeDenied
        def handle(context, arguments):
            try:
                context.files.read("missing.txt")
            except NotFound:
                pass
            try:
                context.files.make_directory("folder")
            except ScopeDenied:
                pass
            context.files.read("src/main.py")
        """
    )
    error = await failure(kind, tool, context)
    assert error.code == "SCOPE_DENIED"
    assert error.data["layer"] == "bound"


async def test_nested_calls_secrets_and_progress_go_through_the_host(
    kind: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool(
        """
        async def handle(context, arguments):
            await context.report_progress(1, 2, "half")
            await context.report_progress(2.0)
            return [await context.call_tool("other:echo", {"a": 1}), context.secret("TOKEN")]
        """,
    )
    assert await run(kind, tool, context) == [{"echo": {"a": 1}}, "s3cret"]
    assert context.progress == [(1, 2, "half"), (2.0, None, None)]
    assert context.calls == [("other:echo", {"a": 1})]


async def test_a_nested_refusal_keeps_its_code_and_data(
    kind: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool("async def handle(context, arguments): return await context.call_tool('other:asks', {})")
    error = await failure(kind, tool, context)
    assert error.code == "APPROVAL_REQUIRED"
    assert error.data["refusal"] == {"approval_id": "appr_1"}


async def test_an_undeclared_secret_is_refused(kind: PythonKind, make_tool: Any, context: Any) -> None:
    tool = make_tool("def handle(context, arguments): return context.secret('OTHER')")
    assert (await failure(kind, tool, context)).code == "SCOPE_DENIED"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("raise ValueError('no such\\nthing')", "TOOL_FAILED", "raised ValueError: no such thing"),
        ("raise KeyboardInterrupt", "TOOL_FAILED", "raised KeyboardInterrupt"),
        ("raise SystemExit(3)", "TOOL_FAILED", "raised SystemExit: 3"),
        (
            "import packhost.errors as e; raise e.ToolFailed('not today', hint='tomorrow')",
            "TOOL_FAILED",
            "not today",
        ),
        ("import packhost.errors as e; raise e.InvalidInput('odd')", "INVALID_INPUT", "odd"),
        (
            "import packhost.errors as e; raise e.PackhostError('mine', code='APPROVAL_DENIED')",
            "TOOL_FAILED",
            "mine",
        ),
        ("import os; os._exit(7)", "TOOL_FAILED", "ended with exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "EFFECTS_UNKNOWN", "was ended by signal 9"),
        ("import os; os.close(SOCKET); import time; time.sleep(60)", "TOOL_FAILED", "closed its connection"),
        ("return {1, 2}", "OUTPUT_INVALID", "not JSON"),
        ("return b'bytes'", "OUTPUT_INVALID", "not JSON"),
        ("return float('nan')", "OUTPUT_INVALID", "not JSON"),
        ("return [float('inf')]", "OUTPUT_INVALID", "not JSON"),
        ("a = []; a.append(a); return a", "OUTPUT_INVALID", "not JSON"),
        ("a = []\n    for _ in range(100000): a = [a]\n    return a", "OUTPUT_INVALID", "not JSON"),
        ("return {('a', 'b'): 1}", "OUTPUT_INVALID", "not JSON"),
        ("return 'x' * (17 << 20)", "OUTPUT_TOO_LARGE", "more than"),
        ("send(b'\\x00\\x00\\x00\\x05hello')", "TOOL_FAILED", "not JSON"),
        ("send(b'GET / HTTP/1.1')", "OUTPUT_TOO_LARGE", "more than"),
        ("send(b'\\xff\\xff\\xff\\xff')", "OUTPUT_TOO_LARGE", "more than"),
        ("frame(b'[]')", "TOOL_FAILED", "not JSON"),
        ("frame(b'[' * 100000)", "TOOL_FAILED", "not JSON"),
        ('frame(b\'{"op":"result","value":NaN}\')', "TOOL_FAILED", "not JSON"),
        ("frame(b'\\xff\\xfe')", "TOOL_FAILED", "not JSON"),
        ('frame(b\'{"op":"admin"}\')', "TOOL_FAILED", "unknown kind"),
        ('frame(b\'{"op":"result"}\')', "TOOL_FAILED", "unknown kind"),
        ('frame(b\'{"op":"files","method":"__init__","arguments":{}}\')', "TOOL_FAILED", "does not exist"),
        (
            'frame(b\'{"op":"files","method":"read","arguments":{"path":1}}\')',
            "TOOL_FAILED",
            "wrong arguments",
        ),
        ('frame(b\'{"op":"files","method":[],"arguments":{}}\')', "TOOL_FAILED", "is not one"),
        ('frame(b\'{"op":"progress","progress":"x"}\')', "TOOL_FAILED", "not a number"),
        ('frame(b\'{"op":"secret","name":null}\')', "TOOL_FAILED", "is not one"),
        ('frame(b\'{"op":"error","code":{}}\')', "TOOL_FAILED", ""),
    ],
)
async def test_whatever_a_handler_does_the_caller_gets_a_clear_error(
    kind: PythonKind, make_tool: Any, context: Any, body: str, code: str, words: str
) -> None:
    tool = make_tool(
        "import os, sys, time\n"
        "SOCKET = int(sys.argv[2]) if len(sys.argv) > 2 else 3\n"
        "def send(data): os.write(SOCKET, data); time.sleep(60)\n"
        "def frame(body): send(len(body).to_bytes(4, 'big') + body)\n"
        f"def handle(context, arguments):\n    {body}\n"
    )
    error = await failure(kind, tool, context)
    assert (error.code, words in error.message) == (code, True), error.message
    assert "\n" not in error.message
    assert "Traceback" not in error.message + error.hint


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tools:nothing", "AttributeError"),
        ("absent:handle", "ModuleNotFoundError"),
        ("broken:x", "SyntaxError"),
    ],
)
async def test_a_module_that_cannot_be_used_is_a_clear_error(
    kind: PythonKind, make_tool: Any, context: Any, tmp_path: Path, target: str, words: str
) -> None:
    tool = make_tool("", target=target)
    (tmp_path / "pack" / "broken.py").write_text("def (:")
    error = await failure(kind, tool, context)
    assert error.code == "TOOL_FAILED"
    assert words in error.message


async def test_what_it_prints_goes_to_the_log_and_never_to_the_host_s_output(
    kind: PythonKind,
    make_tool: Any,
    context: Any,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    tool = make_tool(
        """
        import os, subprocess, sys
        def handle(context, arguments):
            print("printed \\x1b[2J")
            os.write(1, b"written\\n")
            print("error", file=sys.stderr)
            print("y" * 1_000_000)
            return None
        """
    )
    with caplog.at_level(logging.INFO, "packhost.kinds"):
        assert await run(kind, tool, context) is None
    assert capfd.readouterr() == ("", "")
    lines = [record.getMessage() for record in caplog.records]
    assert "pack:tool: written" in lines
    assert "pack:tool: error" in lines
    assert any("printed \\x1b[2J" in line for line in lines)
    assert sum(map(len, lines)) < 100_000


async def test_a_cancelled_call_is_killed_with_everything_that_it_started(
    plain: PythonKind, make_tool: Any, context: Any, root: Path
) -> None:
    tool = make_tool(
        """
        import os, subprocess, sys, time
        def handle(context, arguments):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            context.files.write("pids.txt", f"{os.getpid()} {child.pid}".encode())
            while True:
                pass
        """
    )
    pids = root / "pids.txt"
    async with anyio.create_task_group() as group:
        group.start_soon(plain.run, tool, {}, context)
        await until(pids.exists)
        group.cancel_scope.cancel()
    numbers = [int(number) for number in pids.read_text().split()]
    assert len(numbers) == 2
    await until(lambda: all(map(is_gone, numbers)))


async def test_a_call_that_ends_leaves_no_process_behind(
    plain: PythonKind, make_tool: Any, context: Any
) -> None:
    tool = make_tool(
        """
        import subprocess, sys
        def handle(context, arguments):
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
        """
    )
    started = time.monotonic()
    pid = await run(plain, tool, context)
    await until(lambda: is_gone(pid))
    assert time.monotonic() - started < 10


async def test_many_calls_at_once_do_not_mix(kind: PythonKind, make_tool: Any, context: Any) -> None:
    tool = make_tool("def handle(context, arguments): return arguments['n']")
    results: dict[int, Any] = {}

    async def one(number: int) -> None:
        results[number] = await run(kind, tool, context, n=number)

    await run(kind, tool, context, n=0)
    before = len(os.listdir("/proc/self/fd"))
    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    assert results == {number: number for number in range(6)}
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)


async def test_a_handler_dies_with_the_host(make_tool: Any, tmp_path: Path) -> None:
    tool = make_tool(
        """
        import os
        def handle(context, arguments):
            with open(arguments["mark"], "w") as mark:
                mark.write(str(os.getpid()))
            while True:
                pass
        """
    )
    request = {"module": "tools", "function": "handle", "folder": str(tool.pack.folder)}
    facts = ("tool", "call_id", "run_id", "session_id", "principal", "client", "config")
    request |= {"arguments": {"mark": str(tmp_path / "mark")}, "context": dict.fromkeys(facts)}
    host = (
        "import json, os, socket, subprocess, sys, time\n"
        "ours, theirs = socket.socketpair()\n"
        "bootstrap, frame, paths = sys.argv[1], bytes.fromhex(sys.argv[2]), json.dumps(sys.path)\n"
        "arguments = [bootstrap, paths, str(theirs.fileno()), str(os.getpid())]\n"
        "subprocess.Popen([sys.executable, '-I', '-S', '-c', *arguments], pass_fds=[theirs.fileno()])\n"
        "ours.sendall(frame)\n"
        "time.sleep(600)\n"
    )
    arguments = [sys.executable, "-c", host, worker._BOOTSTRAP, encode(request).hex()]
    process = await anyio.open_process(arguments)
    try:
        mark = tmp_path / "mark"
        await until(lambda: mark.exists() and mark.read_text())
    finally:
        process.kill()
        await process.aclose()
    await until(lambda: is_gone(int(mark.read_text())))
