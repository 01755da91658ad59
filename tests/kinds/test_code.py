"""Tools of kind `code`: what the code sees, what it may return, and that nothing it does goes further."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import PackhostError
from packhost.kinds.base import Located, PackFacts, Tool
from packhost.kinds.code import CodeKind
from packhost.kinds.code_config import CodeSecret, config_of
from packhost.kinds.code_source import ready
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox import landlock

pytestmark = pytest.mark.anyio

VALUE = "s3cret-value-of-the-token"


class Context:
    """A context with a bound and one secret."""

    host = None
    session_id = "s-1"
    principal = "ann"

    def __init__(self, *bound: str) -> None:
        self.layers: tuple[Layer, ...] = (Layer("workspace bound", tuple(map(parse_scope, bound))),)
        self.asked: list[str] = []

    def secret(self, name: str) -> str:
        self.asked.append(name)
        return VALUE


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was sent, or a redirect to what `to` names."""

    seen: list[dict[str, Any]]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        said = {
            "path": self.path,
            "method": self.command,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("utf-8", "replace"),
        }
        self.seen.append(said)
        _, found, to = self.path.partition("?to=")
        self.send_response(302 if found else 200)
        if found:
            self.send_header("location", to)
        data = json.dumps(said).encode()
        self.send_header("x-echo", self.headers.get("authorization", ""))
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


class Server:
    """An echoing server on this machine."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        handler = type("Handler", (Echo,), {"seen": self.seen})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self.host = f"127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for all: starting interpreters for each test takes longer than the tests."""
    return "asyncio"


@pytest.fixture(scope="module")
async def kind(anyio_backend: str) -> AsyncIterator[CodeKind]:
    made = CodeKind()
    yield made
    await made.close()


def spec_of(code: str, *, scopes: tuple[str, ...] = (), properties: Any = None, **config: Any) -> ToolSpec:
    return ToolSpec(
        name="tool",
        description="A tool.",
        kind="code",
        permission="read",
        required_scopes=scopes,
        input_schema={"type": "object", "properties": properties or {}, "additionalProperties": False},
        config={"code": code, **config},
    )


def tool_of(code: str, **more: Any) -> Tool:
    spec = spec_of(code, **more)
    pack = PackFacts("pack", "1", "Pack", "0", None, False, False, None)
    scopes = tuple(parse_scope(line) for line in spec.required_scopes)
    return Tool(ToolId("pack", "tool"), spec, pack, scopes, repr(spec))


async def run(kind: CodeKind, code: str, arguments: Any = None, context: Any = None, **more: Any) -> Any:
    properties = {name: {} for name in arguments or {}}
    tool = tool_of(code, properties=more.pop("properties", properties), **more)
    return await kind.run(tool, arguments or {}, context or Context())


async def refused(kind: CodeKind, code: str, **more: Any) -> PackhostError:
    with anyio.fail_after(20), pytest.raises(PackhostError) as caught:
        await run(kind, code, **more)
    return caught.value


# what the code sees and returns


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("3", 3),
        ("x = 3\nx", 3),
        ("return 5", 5),
        ("if True:\n    return [1]\n2", [1]),
        ("for i in [1, 2]:\n    if i == 2:\n        return {'i': i}", {"i": 2}),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    return 'caught'", "caught"),
        ("async def f():\n    return 'awaited'\nawait f()", "awaited"),
        ("def f():\n    return (1, 2)\nf()", [1, 2]),
        ("x = 1", None),
        ("return", None),
        ("None", None),
        ("(1, 2)", [1, 2]),
        ("return 1, *[2, 3]", [1, 2, 3]),
        ("'ünïcode' + ' ☃'", "ünïcode ☃"),
        ("'é'; 'ü'", "ü"),
        ("'''two\nlines'''", "two\nlines"),
        ("import json\njson.loads('[1]')", [1]),
        ("{1: 2}", {"1": 2}),
        ("[x for x in range(3)]", [0, 1, 2]),
    ],
)
async def test_the_last_value_or_what_is_returned_is_the_result(
    kind: CodeKind, code: str, value: Any
) -> None:
    assert await run(kind, code) == value


async def test_parameters_are_there_by_name(kind: CodeKind) -> None:
    assert await run(kind, "{'sum': a + b}", {"a": 1, "b": 2.5}) == {"sum": 3.5}


async def test_a_parameter_that_is_left_out_is_its_default_or_none(kind: CodeKind) -> None:
    properties = {"a": {"default": 7}, "b": {"type": "string"}, "c": True}
    assert await run(kind, "[a, b, c]", properties=properties) == [7, None, None]


async def test_arguments_that_are_not_declared_are_not_there(kind: CodeKind) -> None:
    tool = tool_of("a", properties={})
    with pytest.raises(PackhostError, match="NameError"):
        await kind.run(tool, {"a": 1}, Context())  # type: ignore[arg-type]


async def test_nothing_of_one_call_is_left_for_the_next(kind: CodeKind) -> None:
    await run(kind, "kept = 1")
    assert (await refused(kind, "kept")).code == "TOOL_FAILED"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("{1, 2}", "set"),
        ("float('nan')", "not JSON compliant"),
        ("float('inf')", "not JSON compliant"),
        ("b'bytes'", "bytes"),
        ("x = []\nx.append(x)\nx", "Circular"),
        ("x = []\nfor i in range(5000):\n    x = [x]\nx", "recursion"),
        ("10 ** 5000", "digits"),
        ("import datetime\ndatetime.datetime.now()", "datetime"),
        ("lambda: 1", "function"),
    ],
)
async def test_what_is_not_json_is_refused_and_says_so(kind: CodeKind, code: str, why: str) -> None:
    error = await refused(kind, code)
    assert error.code == "TOOL_FAILED"
    assert why in error.message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError in line 1: division by zero"),
        ("x = 1\nraise ValueError('no good')", "ValueError in line 2: no good"),
        ("def f():\n    raise KeyError('k')\nf()", "KeyError in line 2"),
        ("assert 1 == 2", "AssertionError in line 1"),
        ("raise BaseException('all')", "BaseException in line 1: all"),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt in line 1"),
        ("raise SystemExit('out')", "SystemExit in line 1"),
        ("raise StopIteration", "StopIteration in line 1"),
        ("raise TimeoutError('mine')", "TimeoutError in line 1: mine"),
    ],
)
async def test_an_exception_fails_the_call_and_names_its_line(kind: CodeKind, code: str, said: str) -> None:
    error = await refused(kind, code)
    assert error.code == "TOOL_FAILED"
    assert said in error.message


async def test_a_long_message_is_cut_and_on_one_line(kind: CodeKind) -> None:
    error = await refused(kind, "raise ValueError('a\\nb' * 100_000)")
    assert len(error.message) < 700
    assert "\n" not in error.message


# limits


SLOW = [
    "while True: pass",
    "sum(range(10 ** 12))",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "import math\nmath.factorial(10 ** 7)",
    "a = 'x' * 10 ** 6\nwhile True: a in a * 2",
    "x = 1\nwhile True: x = x * 3",
    "async def f():\n    while True: pass\nawait f()",
]


@pytest.mark.parametrize("code", SLOW)
async def test_code_that_does_not_end_is_ended_at_its_time(kind: CodeKind, code: str) -> None:
    began = anyio.current_time()
    error = await refused(kind, code, timeout=200)
    assert error.code in ("TOOL_TIMEOUT", "LIMIT_EXCEEDED")
    assert anyio.current_time() - began < 5
    assert await run(kind, "1 + 1") == 2


@pytest.mark.parametrize(
    "code",
    [
        "'a' * 10 ** 9",
        "x = [0]\nwhile True: x = x + x",
        "10 ** 10 ** 8",
        "list(range(10 ** 8))",
        "[0] * 10 ** 9",
        "bytes(10 ** 9)",
        "f'{1:1000000000}'",
        "'a'.ljust(10 ** 9)",
        "{i: i for i in range(10 ** 7)}",
        "'a' * 10 ** 6 * 60",
        "'a'.join(['x' * 1000] * 10 ** 6)",
        "x = {}\nfor i in range(10 ** 7): x = {'a': x, 'b': [i] * 10}",
    ],
)
async def test_a_bomb_of_memory_is_refused_and_the_next_call_runs(kind: CodeKind, code: str) -> None:
    error = await refused(kind, code, timeout=20_000)
    assert error.code == "LIMIT_EXCEEDED"
    assert await run(kind, "1 + 1") == 2


@pytest.mark.parametrize(
    "code",
    [
        "def f(): return f()\nf()",
        "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        "class A:\n    def __eq__(self, other): return self == other\nA() == A()",
        "import json\njson.loads('[' * 100000)",
        "eval('(' * 100000)",
        "eval('-' * 100000 + '1')",
        "int('1' * 10 ** 6)",
        "str(2 ** 200000)",
    ],
)
async def test_depth_and_size_are_errors_of_the_code(kind: CodeKind, code: str) -> None:
    assert (await refused(kind, code)).code == "TOOL_FAILED"
    assert await run(kind, "1 + 1") == 2


@pytest.mark.parametrize(
    "code",
    [
        "import re\nre.search('(x+x+)+y', 'x' * 60)",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
        "import re\nre.search('(.*)*(.*)*(.*)*=1', 'x' * 5000)",
    ],
)
async def test_a_bomb_of_a_pattern_ends(kind: CodeKind, code: str) -> None:
    with anyio.fail_after(5):
        assert await run(kind, f"{code} is None") is True


async def test_sleeping_takes_no_time(kind: CodeKind) -> None:
    with anyio.fail_after(2):
        assert await run(kind, "import time\ntime.sleep(1000)\n'woke'", timeout=500) == "woke"


async def test_a_result_beyond_the_limit_is_refused(kind: CodeKind) -> None:
    error = await refused(kind, "'a' * (17 * 1024 * 1024)", timeout=5000)
    assert error.code == "OUTPUT_TOO_LARGE"


async def test_a_cancelled_call_ends_its_interpreter(kind: CodeKind) -> None:
    with anyio.move_on_after(0.2) as scope:
        await run(kind, "while True: pass", timeout=30_000)
    assert scope.cancelled_caught
    with anyio.fail_after(5):
        assert await run(kind, "1 + 1") == 2


def interpreters() -> list[int]:
    """The processes that this one has for code."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if parent == str(os.getpid()) and b"monty" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


async def test_the_kernel_confines_the_interpreter(kind: CodeKind) -> None:
    if landlock.detect() < 1:
        pytest.skip("this kernel has no Landlock")
    await run(kind, "1")
    (process, *_) = interpreters()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)
    assert Path(f"/proc/{process}/environ").read_bytes() == b""


def test_what_becomes_the_interpreter_reads_no_file_of_anybody(tmp_path: Path) -> None:
    if landlock.detect() < 1:
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    become = "import sys; from packhost.kinds.code_launch import become; become('/bin/cat', sys.argv[1:])"
    ran = subprocess.run([sys.executable, "-c", become, str(secret)], capture_output=True, text=True)
    assert (ran.returncode != 0, ran.stdout) == (True, "")
    assert "ermission denied" in ran.stderr


async def test_an_interpreter_that_dies_fails_its_call_alone(kind: CodeKind) -> None:
    before = anyio.current_time()

    async def kill() -> None:
        await anyio.sleep(0.2)
        for process in interpreters():
            os.kill(process, signal.SIGKILL)

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        error = await refused(kind, "while True: pass", timeout=15_000)
    assert error.code == "TOOL_FAILED"
    assert anyio.current_time() - before < 10
    assert await run(kind, "1 + 1") == 2


async def test_the_loop_goes_on_while_code_runs(kind: CodeKind) -> None:
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            await anyio.sleep(0.01)
            steps += 1

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await refused(kind, "while True: pass", timeout=300)
        group.cancel_scope.cancel()
    assert steps > 10


async def test_more_calls_than_interpreters_wait_for_their_turn(kind: CodeKind) -> None:
    results: list[int] = []

    async def one(number: int) -> None:
        results.append(await run(kind, "n * n", {"n": number}))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number)
    assert sorted(results) == [n * n for n in range(20)]


async def test_what_is_printed_goes_to_the_log_cut(kind: CodeKind, caplog: Any, capfd: Any) -> None:
    with caplog.at_level("INFO", logger="packhost.kinds.code"):
        assert await run(kind, "print('hello')\nfor i in range(1000):\n    print('x' * 1000)\n1") == 1
    assert "hello" in caplog.text
    assert "(cut)" in caplog.text
    assert len(caplog.text) < 70_000
    assert capfd.readouterr().out == ""


# what lies outside


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "open('made', 'w')",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "import os\nos.listdir('/')",
        "import os\nos.environ['PATH']",
        "import os\nos.system('id')",
        "import subprocess",
        "import socket",
        "import ctypes",
        "__import__('os')",
        "def g():\n    yield 1\nlist(g())",
    ],
)
async def test_there_is_no_way_out_but_fetch(kind: CodeKind, tmp_path: Path, code: str) -> None:
    assert (await refused(kind, code)).code == "TOOL_FAILED"


async def test_the_environment_of_the_interpreter_is_empty(kind: CodeKind, monkeypatch: Any) -> None:
    monkeypatch.setenv("OF_THE_HOST", "value-of-the-host")
    assert await run(
        kind, "import os\ntry:\n    r = str(os.getenv('OF_THE_HOST'))\nexcept Exception:\n    r = ''\nr"
    ) in (
        "",
        "None",
    )


# the network


OPEN = "on"


async def test_without_network_access_nothing_is_fetched(kind: CodeKind, server: Server) -> None:
    scopes = (f"network {server.host}",)
    error = await refused(
        kind, f"await fetch('http://{server.host}/')", scopes=scopes, context=Context(*scopes)
    )
    assert error.code == "SCOPE_DENIED"
    assert server.seen == []


async def test_a_fetch_gives_status_headers_text_and_json(kind: CodeKind, server: Server) -> None:
    scopes = (f"network {server.host}",)
    code = f"""\
reply = await fetch('http://{server.host}/a?b=1', method='POST', json={{'x': 1}}, headers={{'x-mine': 'm'}})
sent = reply.json()
[reply.ok, reply.status, sent['headers']['x-mine'], sent['body'], reply.url, len(reply.body) > 10]
"""
    found = await run(kind, code, scopes=scopes, context=Context(*scopes), network_access=OPEN)
    assert found == [True, 200, "m", '{"x": 1}', f"http://{server.host}/a?b=1", True]


async def test_fetches_of_one_call_run_side_by_side(kind: CodeKind, server: Server) -> None:
    scopes = (f"network {server.host}",)
    code = f"""\
import asyncio
replies = await asyncio.gather(*[fetch('http://{server.host}/' + str(n)) for n in range(5)])
[reply.json()['path'] for reply in replies]
"""
    found = await run(kind, code, scopes=scopes, context=Context(*scopes), network_access=OPEN)
    assert found == [f"/{n}" for n in range(5)]


@pytest.mark.parametrize("layer", ["bound", "network_access"])
async def test_scopes_and_network_access_both_have_to_cover_a_host(
    kind: CodeKind, server: Server, layer: str
) -> None:
    here, elsewhere = f"network {server.host}", "network 127.0.0.1:1"
    context = Context(elsewhere if layer == "bound" else here)
    allowed = ["127.0.0.1:1"] if layer == "network_access" else [server.host]
    error = await refused(
        kind,
        f"await fetch('http://{server.host}/')",
        scopes=(here, elsewhere),
        context=context,
        network_access={"allowed_hostnames": allowed},
    )
    assert error.code == "SCOPE_DENIED"
    assert server.seen == []


async def test_a_refusal_can_be_caught_by_the_code(kind: CodeKind) -> None:
    code = (
        "try:\n    await fetch('https://example.org/')\nexcept RuntimeError as error:\n    r = str(error)\nr"
    )
    assert "no network" in await run(kind, code)


@pytest.mark.parametrize(
    "call",
    [
        "fetch(1)",
        "fetch('https://a/', method=2)",
        "fetch('https://a/', headers=[1])",
        "fetch('x')",
        "fetch('https://a/', body=3)",
        "fetch('https://a/', headers={'host': 'b'})",
        "fetch('file:///etc/passwd')",
    ],
)
async def test_what_is_no_request_is_refused(kind: CodeKind, call: str) -> None:
    scopes = ("network a",)
    error = await refused(kind, f"await {call}", scopes=scopes, context=Context(*scopes), network_access=OPEN)
    assert error.code == "INVALID_INPUT"


async def test_a_fetch_that_nobody_waits_for_ends_with_the_call(kind: CodeKind, server: Server) -> None:
    scopes = (f"network {server.host}",)
    code = f"x = fetch('http://{server.host}/')\n1"
    assert await run(kind, code, scopes=scopes, context=Context(*scopes), network_access=OPEN) == 1


# secrets


def secret_of(host: str, **more: Any) -> dict[str, Any]:
    return {"name": "TOKEN", "hostname_pattern": host, **more}


async def with_secret(
    kind: CodeKind, server: Server, code: str, context: Context | None = None, **secret: Any
) -> Any:
    scopes = (f"network {server.host}", "secret TOKEN")
    return await run(
        kind,
        code.replace("HOST", server.host),
        scopes=scopes,
        context=context or Context(f"network {server.host}", "secret TOKEN"),
        network_access={"allowed_hostnames": [server.host]},
        secrets=[secret_of(server.host, **secret)],
    )


SEND = "r = await fetch('http://HOST/v1/me', headers={'Authorization': 'Bearer ' + secrets.TOKEN})\n"


async def test_a_secret_reaches_the_declared_place_and_never_the_code(kind: CodeKind, server: Server) -> None:
    code = SEND + "[secrets.TOKEN, r.text(), str(r.headers), r.json()['headers']['authorization']]"
    found = await with_secret(kind, server, code, path="/v1/*")
    assert server.seen[0]["headers"]["authorization"] == f"Bearer {VALUE}"
    assert VALUE not in json.dumps(found)
    assert found[3] == "Bearer [REDACTED]"


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("fetch('http://HOST/v2/me', headers={'Authorization': secrets.TOKEN})", {"path": "/v1/*"}),
        ("fetch('http://HOST/v1/../v2', headers={'Authorization': secrets.TOKEN})", {"path": "/v1/*"}),
        ("fetch('http://HOST/v1/%2e%2e/v2', headers={'Authorization': secrets.TOKEN})", {"path": "/v1/*"}),
        ("fetch('http://HOST/v1/me', headers={'x-other': secrets.TOKEN})", {}),
        ("fetch('http://HOST/v1/me?key=' + secrets.TOKEN)", {}),
        ("fetch('http://HOST/v1/me', method='POST', body=secrets.TOKEN)", {}),
        (
            "fetch('http://HOST/v1/me', headers={'Authorization': secrets.TOKEN})",
            {"injection_mode": "header", "header": "x-api-key"},
        ),
    ],
)
async def test_elsewhere_the_placeholder_stays_what_it_is(
    kind: CodeKind, server: Server, call: str, more: Any
) -> None:
    context = Context(f"network {server.host}", "secret TOKEN")
    await with_secret(kind, server, f"r = await {call}\nr.status", context, **more)
    assert VALUE not in json.dumps(server.seen)
    assert context.asked == []


async def test_a_redirect_to_another_path_does_not_take_the_secret_along(
    kind: CodeKind, server: Server
) -> None:
    code = "r = await fetch('http://HOST/v1/a?to=/v2/b', headers={'Authorization': secrets.TOKEN})\nr.url"
    await with_secret(kind, server, code, path="/v1/*")
    assert [VALUE in str(seen["headers"]) for seen in server.seen] == [True, False]


async def test_a_secret_in_another_header_is_put_there(kind: CodeKind, server: Server) -> None:
    code = "r = await fetch('http://HOST/', headers={'X-Api-Key': secrets.TOKEN})\nr.status"
    assert await with_secret(kind, server, code, injection_mode="header", header="X-Api-Key") == 200
    assert server.seen[0]["headers"]["x-api-key"] == VALUE


async def test_an_exception_with_what_the_server_echoed_holds_no_secret(
    kind: CodeKind, server: Server, caplog: Any
) -> None:
    with caplog.at_level("DEBUG", logger="packhost"), pytest.raises(PackhostError) as caught:
        await with_secret(kind, server, SEND + "print(r.text())\nraise ValueError(r.text())")
    assert VALUE not in str(caught.value)
    with pytest.raises(PackhostError) as cut:
        await with_secret(kind, server, SEND + f"raise ValueError('x' * 490 + '{VALUE}')")
    assert "xxx" in str(cut.value)
    assert VALUE[:3] not in str(cut.value)
    assert VALUE not in " ".join(
        one.getMessage() for one in caplog.records if one.name.startswith("packhost")
    )


@pytest.mark.parametrize(
    ("pattern", "path", "target", "goes"),
    [
        ("api.example.org", "", ("api.example.org", 443, "/x", True), True),
        ("api.example.org", "", ("api.example.org", 8443, "/x", True), True),
        ("api.example.org", "", ("api.example.org", 80, "/x", False), False),
        ("api.example.org", "", ("evil-api.example.org", 443, "/", True), False),
        ("*.example.org", "", ("api.example.org", 443, "/", True), True),
        ("*.example.org", "", ("example.org", 443, "/", True), False),
        ("*.example.org", "", ("badexample.org", 443, "/", True), False),
        ("api.example.org", "/user", ("api.example.org", 443, "/user", True), True),
        ("api.example.org", "/user", ("api.example.org", 443, "/user/2", True), False),
        ("api.example.org", "/v1/*", ("api.example.org", 443, "/v1/a/b", True), True),
        ("api.example.org", "/v1/*", ("api.example.org", 443, "/v1/..", True), False),
        ("api.example.org", "/v1/*", ("api.example.org", 443, "/v1//x", True), False),
        ("api.example.org", "/v1/*", ("api.example.org", 443, "/v1/%2Fx", True), False),
        ("api.example.org:8443", "", ("api.example.org", 443, "/", True), False),
    ],
)
def test_a_secret_goes_to_the_declared_host_and_path_alone(
    pattern: str, path: str, target: tuple[str, int, str, bool], goes: bool
) -> None:
    spec = spec_of("1", secrets=[{"name": "T", "hostname_pattern": pattern, "path": path}])
    secret: CodeSecret = config_of(spec).secrets[0]
    host, port, asked, secure = target
    assert secret.goes_to(host, port, asked, secure=secure) is goes


# what is found when the manifest loads


@pytest.mark.parametrize(
    ("code", "said", "line"),
    [
        ("def f(:\n    pass", "line 1 of `code`", 1),
        ("x = 1\ny = (\n", "line 2 of `code`", 2),
        ("x = 1\nprint(unknown)\n", "line 2 of `code`: the name `unknown` is not known", 2),
        ("import socket", "line 1 of `code`: there is no module `socket` here", 1),
        ("def g():\n    yield 1", "this is not supported: yield expressions", 2),
        ("a\n{{secret:KEY}}", "code cannot reference `{{secret:…}}`", 2),
    ],
)
def test_code_that_cannot_run_is_told_with_its_line(code: str, said: str, line: int) -> None:
    kind = CodeKind()
    problems = kind.check(spec_of(code, properties={"a": {}}))
    kind.let_go()
    assert said in problems[0]
    assert isinstance(problems[0], Located)
    assert (problems[0].path, problems[0].line) == (("config", "code"), line)


def test_checking_runs_nothing_and_finds_nothing_wrong_with_sound_code() -> None:
    kind = CodeKind()
    code = (
        "while True:\n    print(map(str, filter(None, [getattr(a, 'b', None)])))\n    await fetch(secrets.A)"
    )
    assert kind.check(spec_of(code, properties={"a": {}})) == []
    kind.let_go()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"timeout": 30_001}, "exceeds the limit of 30 s"),
        ({"timeout": 0}, "at least 1"),
        ({"timeout": "5s"}, "milliseconds"),
        ({"timeouts": 5}, "did you mean `timeout`?"),
        ({"network_access": "yes"}, "network_access"),
        ({"network_access": {"allowed_hostnames": ["other.org"]}}, "add `network other.org`"),
        ({"network_access": {"allowed_hostnames": "a"}}, "a list of hosts"),
        ({"network_access": {"allowed_hostnames": ["http://a/"]}}, "a"),
        ({"secrets": [{"name": "T", "hostname_pattern": "a.org"}]}, "needs `network_access`"),
        ({"network_access": "on", "secrets": [{"name": "U", "hostname_pattern": "a.org"}]}, "add `secret U`"),
        ({"network_access": "on", "secrets": [{"name": "T", "hostname_pattern": "*"}]}, "hostname_pattern"),
        ({"network_access": "on", "secrets": [{"name": "T"}]}, "hostname_pattern"),
        (
            {"network_access": "on", "secrets": [{"name": "T", "hostname_pattern": "a.org", "path": "x"}]},
            "path",
        ),
        (
            {
                "network_access": "on",
                "secrets": [{"name": "T", "hostname_pattern": "a.org", "injection_mode": "query"}],
            },
            "injection_mode",
        ),
        (
            {
                "network_access": "on",
                "secrets": [{"name": "T", "hostname_pattern": "a.org", "injection_mode": "header"}],
            },
            "header",
        ),
        ({"network_access": "on", "secrets": [{"name": "T", "hostname_pattern": "a.org"}] * 2}, "twice"),
    ],
)
def test_a_wrong_config_is_told(config: dict[str, Any], said: str) -> None:
    spec = spec_of("1", scopes=("network a.org", "secret T"), **config)
    assert any(said in problem for problem in CodeKind().check(spec)), CodeKind().check(spec)


@pytest.mark.parametrize("name", ["fetch", "secrets", "class", "two words", "__x__", "é"])
def test_a_parameter_that_cannot_be_a_name_is_told(name: str) -> None:
    problems = CodeKind().check(spec_of("1", properties={name: {}}))
    assert any(f"the parameter `{name}`" in problem for problem in problems)


def test_code_is_needed() -> None:
    assert "needs `config.code`" in CodeKind().check(spec_of("  "))[0]


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_making_ready_never_changes_the_number_of_lines(text: str) -> None:
    try:
        made = ready(text)
    except (SyntaxError, ValueError):
        return
    assert made.count("\n") == text.count("\n")


def test_any_number_of_tools_can_be_checked() -> None:
    kind = CodeKind()
    problems = [kind.check(spec_of(f"a + {n}", properties={"a": {}})) for n in range(700)]
    kind.let_go()
    assert problems == [[]] * 700
