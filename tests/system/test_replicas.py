"""Two real hosts over one PostgreSQL store: in one folder or in two, killed, stopped and told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from balancer import Balancer
from mcp import Client, MCPError, types

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.real]
DEMO = Path(__file__).with_name("two_replicas.py")
ROUNDS = int(os.environ.get("PACKHOST_ROUNDS", "20"))
CONFIG = """
packhost: 1
packs: [agent-runtime, workspace, {path: ./slow}]
bound: [path read **, path write src/**, path write .agent-runtime/**]
enforcement: {require: advisory}
policy:
  - {match: {tool: "workspace:write_file"}, decide: ask, reason: look}
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - tool_calls: [{id: c1, name: workspace_write_file, arguments: {path: src/a.txt, content: hi}}]
        - text: done
    slow:
      provider: scripted
      script:
        - tool_calls: [{id: c1, name: slow_work, arguments: {seconds: 0.3}}]
        - tool_calls: [{id: c2, name: slow_work, arguments: {seconds: 0.3}}]
        - tool_calls: [{id: c3, name: slow_work, arguments: {seconds: 0.3}}]
        - text: done
"""
PACK = """
packhost: 1
id: slow
version: "1"
title: Slow
tools:
  - name: work
    description: Takes its time.
    kind: python
    target: slow:work
    permission: write
    required_scopes: [path write src/**]
    input_schema: {type: object, properties: {seconds: {type: number}}, required: [seconds]}
"""
SOURCE = """
import time

def work(context, arguments):
    with open("src/log", "a") as log:
        log.write("began\\n")
    time.sleep(arguments["seconds"])
    with open("src/log", "a") as log:
        log.write("ended\\n")
    return {"worked": arguments["seconds"]}
"""


class Process:
    """A `packhost serve` of its own."""

    def __init__(
        self, world: Any, *options: str, env: dict[str, str] | None = None, stdio: bool = False
    ) -> None:
        where = [] if stdio else ["--http", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*world.command, "serve", "-w", str(world.root), *where, *options],
            env={**world.env, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if stdio else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = ""
        assert self.process.stderr is not None
        if not stdio:
            line = self.process.stderr.readline()
            self.url = line.rsplit(" ", 1)[1].strip() if "listening on" in line else ""
            self.said = line if self.url else line + self.process.stderr.read()

    def end(self, within: float = 20.0) -> tuple[int, str]:
        said = self.process.communicate(timeout=within)[1]
        return self.process.returncode, said or ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def serve(world: Any) -> Iterator[Callable[..., Process]]:
    """Starts hosts, and ends them with the test."""
    running: list[Process] = []

    def start(*options: str, of: Any = world, **more: Any) -> Process:
        running.append(Process(of, *options, **more))
        return running[-1]

    yield start
    for one in running:
        one.close()


def settle(world: Any, store: str = "sqlite") -> None:
    world.write("slow/pack.yaml", PACK)
    world.write("slow/slow.py", SOURCE)
    world.write("src/log", "")
    world.write("packhost.yaml", f"{CONFIG}store: {json.dumps(store)}\n")
    world.accept()


def log(world: Any) -> list[str]:
    return list((world.root / "src" / "log").read_text().split())


async def until(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    with anyio.fail_after(seconds):
        while not (found := await anyio.to_thread.run_sync(check)):
            await anyio.sleep(0.02)
    return found


def checks(world: Any, name: str) -> list[str]:
    """What `packhost doctor` says under one name."""
    return [one["text"] for one in world.json("doctor", code=None)["checks"] if one["check"] == name]


def turn(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "go"}], "loop": True, **more}


def demo(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DEMO), *options], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_whose_host_is_killed_goes_on_at_the_other_with_no_effect_lost_or_doubled(
    own_postgres: Any,
) -> None:
    said = demo("--store", own_postgres.url())
    assert "SIGKILL to" in said
    assert "held by 2 hosts in turn" in said
    assert said.endswith("no effect was lost and none was doubled\n")


@pytest.mark.parametrize("how", ["kill", "mixed"])
def test_hosts_are_taken_away_again_and_again_and_nothing_is_lost_or_doubled(
    own_postgres: Any, how: str
) -> None:
    said = demo(
        "--store", own_postgres.url(), "--rounds", str(ROUNDS), "--how", how, "--quiet", "--seed", "7"
    )
    assert said.count("no effect lost, none doubled") == ROUNDS


async def test_a_second_host_in_the_same_folder_stands_beside_the_first(
    world: Any, serve: Callable[..., Process], postgres_url: str
) -> None:
    settle(world, postgres_url)
    first, second = serve(), serve()
    assert first.url
    assert second.url
    assert first.url != second.url
    async with Client(f"{first.url}/mcp") as one, Client(f"{second.url}/mcp") as two:
        started = await one.call_tool("agent-runtime_execute-turn", turn(background=True))
        run_id = started.structured_content["run_id"]

        def asked() -> Any:
            return world.json("approvals", "list", "--status", "pending")["approvals"]

        (question,) = await until(asked)
        refused = await two.call_tool("agent-runtime_resume_workflow", {"run_id": run_id})
        assert refused.meta["packhost/refusal"]["code"] == "CONTINUATION_IN_PROGRESS"
        world.run("approvals", "deny", question["id"])  # by way of the first, which has the socket
        await until(lambda: world.json("runs", "show", run_id)["status"] == "completed")
    assert checks(world, "replicas") == ["2 hosts share the store"]
    assert checks(world, "warning") == []


def test_on_sqlite_a_second_host_over_http_is_refused(world: Any, serve: Callable[..., Process]) -> None:
    settle(world)
    first, second = serve(), serve()
    assert first.url
    assert second.url == ""
    code, _ = second.end()
    assert (code, second.said.partition(":")[0]) != (0, "packhost")


def test_a_host_with_another_key_is_refused_and_told_what_to_do(
    world: Any, serve: Callable[..., Process], postgres_url: str, tmp_path: Path
) -> None:
    settle(world, postgres_url)
    first = serve()
    (tmp_path / "other.key").write_bytes(b"k" * 32)
    second = serve(env={"PACKHOST_HOST_KEY_FILE": str(tmp_path / "other.key")})
    code, said = second.end()
    assert code != 0
    assert "CONFIG_INVALID" in second.said + said
    assert "host.key" in second.said + said
    assert first.process.poll() is None


def test_hosts_that_accepted_different_files_are_told_apart(
    world: Any, serve: Callable[..., Process], postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "host.key").write_bytes(b"k" * 32)
    (tmp_path / "second").mkdir()
    other = type(world)(tmp_path / "second")
    for one in (world, other):
        one.env["PACKHOST_HOST_KEY_FILE"] = str(tmp_path / "host.key")
    settle(world, postgres_url)
    settle(other, postgres_url)
    serve()
    serve(of=other)
    assert checks(world, "replicas") == ["2 hosts share the store"]
    assert checks(world, "warning") == []
    other.write(
        "packhost.yaml", f"{CONFIG}store: {json.dumps(postgres_url)}\nlimits: {{max_result_bytes: 8000000}}\n"
    )
    other.accept()
    assert ["accepted different configurations" in one for one in checks(world, "warning")] == [True]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_told_to_stop_a_host_lets_a_call_end_and_takes_no_other(
    world: Any, serve: Callable[..., Process], store: str, request: pytest.FixtureRequest
) -> None:
    settle(world, "sqlite" if store == "sqlite" else request.getfixturevalue("postgres_url"))
    host = serve("--grace", "8s")
    results: list[Any] = []
    async with Client(f"{host.url}/mcp") as client, anyio.create_task_group() as tasks:
        await client.list_tools()

        async def work() -> None:
            results.append(await client.call_tool("slow_work", {"seconds": 1.5}))

        tasks.start_soon(work)
        await until(lambda: log(world) == ["began"])
        began = time.monotonic()
        host.process.send_signal(signal.SIGTERM)
        async with httpx2.AsyncClient() as http:

            async def refused() -> Any:
                answer = await http.get(f"{host.url}/nothing")
                return answer if answer.status_code == 503 else None

            with anyio.fail_after(1.0):
                while (answer := await refused()) is None:
                    await anyio.sleep(0.02)
        assert (answer.headers["retry-after"], answer.json()["error"]) == ("1", "stopping")
        with pytest.raises(MCPError):
            await client.call_tool("slow_work", {"seconds": 0})
    assert results[0].structured_content == {"worked": 1.5}
    code, _ = await anyio.to_thread.run_sync(host.end)
    assert (code, log(world)) == (0, ["began", "ended"])
    assert time.monotonic() - began < 8


async def test_told_to_stop_a_host_hands_its_runs_over_and_the_next_goes_on_at_once(
    world: Any, serve: Callable[..., Process], postgres_url: str
) -> None:
    settle(world, postgres_url)
    first = serve("--lease", "60s")
    async with Client(f"{first.url}/mcp") as client:
        started = await client.call_tool(
            "agent-runtime_execute-turn", turn(background=True, model_profile="slow")
        )
        run_id = started.structured_content["run_id"]
    await until(lambda: log(world))
    second = serve("--lease", "60s")
    first.process.send_signal(signal.SIGTERM)
    code, _ = await anyio.to_thread.run_sync(first.end)
    assert code == 0
    await until(lambda: world.json("runs", "show", run_id)["status"] == "completed")
    shown = world.json("runs", "show", run_id)
    assert [call["status"] for call in shown["calls"]] == ["ok"] * 3
    assert log(world) == ["began", "ended"] * 3
    assert second.process.poll() is None


def test_what_does_not_end_within_the_grace_time_is_cut_off(
    world: Any, serve: Callable[..., Process]
) -> None:
    settle(world)
    host = serve("--grace", "2s")
    body = turn(background=True, model_profile="slow")
    world.run("call", "slow:work", '{"seconds": 0}')

    async def start() -> str:
        async with Client(f"{host.url}/mcp") as client:
            started = await client.call_tool("agent-runtime_execute-turn", body)
            return str(started.structured_content["run_id"])

    run_id = anyio.run(start)
    began = time.monotonic()
    host.process.send_signal(signal.SIGTERM)
    code, said = host.end()
    assert (code, "Traceback" in said) == (0, False)
    assert time.monotonic() - began < 4
    assert world.json("runs", "show", run_id)["status"] in ("interrupted", "completed")


async def test_a_second_signal_ends_a_host_at_once(world: Any, serve: Callable[..., Process]) -> None:
    settle(world)
    host = serve("--grace", "30s")
    results: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            try:
                async with Client(f"{host.url}/mcp") as client:
                    await client.call_tool("slow_work", {"seconds": 20})
            except* Exception:  # whatever the client makes of its server's end
                results.append("broken off")

        tasks.start_soon(work)
        await until(lambda: log(world) == ["began"])
        host.process.send_signal(signal.SIGTERM)
        await anyio.sleep(0.3)
        assert host.process.poll() is None
        began = time.monotonic()
        host.process.send_signal(signal.SIGTERM)
        code, _ = await anyio.to_thread.run_sync(host.end)
        assert (code, time.monotonic() - began < 4) == (0, True)


def test_on_stdio_a_host_lets_a_call_end_when_it_is_told_to_stop(
    world: Any, serve: Callable[..., Process]
) -> None:
    settle(world)
    host = serve("--grace", "8s", stdio=True)
    to, back = host.process.stdin, host.process.stdout
    assert to is not None
    assert back is not None

    def send(method: str, id: int | None = None, **params: Any) -> None:
        to.write(
            json.dumps({"jsonrpc": "2.0", **({"id": id} if id else {}), "method": method, "params": params})
            + "\n"
        )
        to.flush()

    info = {"name": "raw", "version": "1"}
    send("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
    assert json.loads(back.readline())["id"] == 1
    send("notifications/initialized")
    send("tools/call", 2, name="slow_work", arguments={"seconds": 1.0})
    deadline = time.monotonic() + 20
    while log(world) != ["began"] and time.monotonic() < deadline:
        time.sleep(0.02)
    host.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    send("tools/call", 3, name="slow_work", arguments={"seconds": 0.0})
    answers = {answer["id"]: answer["result"] for answer in (json.loads(back.readline()) for _ in range(2))}
    assert answers[2]["structuredContent"] == {"worked": 1.0}
    assert answers[3]["isError"] is True
    assert "stopping" in answers[3]["content"][0]["text"]
    code, _ = host.end()
    assert code == 0


class Dialog:
    """A person who says yes to whatever is asked, and where each question was asked from."""

    def __init__(self, *, action: str = "accept") -> None:
        self.asked: list[str] = []
        self._action = action

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action=self._action, content={} if self._action == "accept" else None)


@pytest.fixture
def balancer() -> Iterator[Balancer]:
    """Sends each request to the next host, whatever it belongs to."""
    made = Balancer(affinity=False)
    yield made
    made.close()


def between(balancer: Balancer, *hosts: Process) -> str:
    balancer.backends = [int(host.url.rsplit(":", 1)[1]) for host in hosts]
    return f"http://127.0.0.1:{balancer.port}/mcp"


async def test_a_client_of_the_stateless_era_goes_to_two_hosts_in_turn_and_is_asked_once(
    world: Any, serve: Callable[..., Process], postgres_url: str, balancer: Balancer
) -> None:
    settle(world, postgres_url)
    url, dialog = between(balancer, serve(), serve()), Dialog()
    async with Client(url, mode="auto", elicitation_callback=dialog) as client:
        for name in ("one", "two", "three"):
            result = await client.call_tool("workspace_write_file", {"path": f"src/{name}", "content": name})
            assert not result.is_error, result.content
    assert len(dialog.asked) == 3
    assert len(set(balancer.sent)) == 2
    assert {path.name for path in (world.root / "src").iterdir()} == {"one", "two", "three", "log"}


async def test_an_answer_to_a_runs_question_may_come_to_the_other_host(
    world: Any, serve: Callable[..., Process], postgres_url: str, balancer: Balancer
) -> None:
    settle(world, postgres_url)
    url, dialog = between(balancer, serve(), serve()), Dialog()
    async with Client(url, mode="auto", elicitation_callback=dialog) as client:
        await client.list_tools()
        balancer.sent.clear()
        with anyio.fail_after(20):
            result = await client.call_tool("agent-runtime_execute-turn", turn())
    assert result.structured_content is not None, result.content
    assert (result.structured_content["outcome"], result.structured_content["text"]) == ("completed", "done")
    assert (len(dialog.asked), len(set(balancer.sent))) == (1, 2)
    assert (world.root / "src" / "a.txt").read_text() == "hi"
    (run,) = world.json("runs", "list")["runs"]
    assert run["status"] == "completed"


async def test_a_question_that_nobody_answers_at_the_other_host_stays_open(
    world: Any, serve: Callable[..., Process], postgres_url: str, balancer: Balancer
) -> None:
    settle(world, postgres_url)
    url, dialog = between(balancer, serve(), serve()), Dialog(action="cancel")
    async with Client(url, mode="auto", elicitation_callback=dialog) as client:
        await client.list_tools()
        with anyio.fail_after(20):
            result = await client.call_tool("agent-runtime_execute-turn", turn())
    assert result.meta["packhost/refusal"]["code"] == "APPROVAL_REQUIRED"
    (asked,) = world.json("approvals", "list", "--status", "pending")["approvals"]
    assert asked["id"] == result.meta["packhost/refusal"]["approval_id"]


async def test_a_session_of_the_older_era_is_made_anew_at_the_other_host_with_nothing_lost(
    world: Any, serve: Callable[..., Process], postgres_url: str, balancer: Balancer
) -> None:
    settle(world, postgres_url)
    first, second = serve(), serve()
    url = between(balancer, first)
    asked = turn(background=True, model_profile="slow", session_id="talk")
    async with Client(url, mode="legacy") as client:
        started = await client.call_tool("agent-runtime_execute-turn", asked)
        run_id = started.structured_content["run_id"]
        between(balancer, second)
        with pytest.raises(MCPError, match=r"(?i)session"):
            await client.call_tool("agent-runtime_pause_turn", {"run_id": run_id})
    async with Client(url, mode="legacy") as client:
        refused = await client.call_tool("agent-runtime_resume_workflow", {"run_id": run_id})
        assert refused.meta["packhost/refusal"]["code"] == "CONTINUATION_IN_PROGRESS"
        await until(lambda: world.json("runs", "show", run_id)["status"] == "completed")
        more = turn(session_id="talk", model_profile="demo")
        next_turn = await client.call_tool("agent-runtime_execute-turn", {**more, "loop": False})
    assert next_turn.structured_content is not None, next_turn.content
    assert next_turn.structured_content["session_id"] == "talk"
