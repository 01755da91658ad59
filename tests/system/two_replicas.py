#!/usr/bin/env python3
"""Two hosts over one PostgreSQL store, behind a load balancer, of which one is taken away in mid-run.

    python tests/system/two_replicas.py                      # once, with the event log on the screen
    python tests/system/two_replicas.py --rounds 20 --quiet  # again and again, at random moments
    python tests/system/two_replicas.py --how stop           # the host is stopped (SIGSTOP) and comes back

Each host has a folder and a state folder of its own, as on two machines; what they share is the store and
the host's key. A run of turns is started through the balancer. While it makes calls, the host that runs it
is killed; the other goes on with it. Then effects are counted in the files that the tool wrote, and held
against the journal: none lost, none doubled, and of a call that was cut off the run was told so.

Without `--store` a PostgreSQL server is started for the time of the demonstration (Debian's packages).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from balancer import Balancer

from packhost.store.base import Store
from packhost.store.opening import open_store
from packhost.store.ops import calls, events, executions, replicas, sessions
from packhost.workspace.secrets import Secrets

TURNS = 10
PATIENCE = 60.0
NAMES = ("north", "south")
CONFIG = """
packhost: 1
packs: [agent-runtime, {path: ./counting}]
bound: [path read **, path write made/**, path write .agent-runtime/**]
enforcement: {require: advisory}
store: STORE
agent_runtime:
  default_model: demo
  models:
    demo: {provider: scripted, script: SCRIPT}
"""
MANIFEST = """
packhost: 1
id: counting
version: "1"
title: Counting
tools:
  - name: add
    description: Adds a line to a file; twice is not the same as once.
    kind: python
    target: counting:add
    permission: write
    required_scopes: [path write made/**]
    input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
  - name: look
    description: Looks, which may be done again.
    kind: python
    target: counting:look
    permission: read
"""
SOURCE = """
import os, time

def add(context, arguments):
    with open("made/log", "a") as log:
        log.write(context.run_id + " " + arguments["id"] + "\\n")
    time.sleep(0.05)
    return {"added": arguments["id"]}

def look(context, arguments):
    time.sleep(0.02)
    return {"seen": True}
"""
WORTH_SHOWING = ("run.", "call.", "replica.")


class Failed(Exception):
    """Something that must hold does not."""


def need(holds: object, why: str) -> None:
    """Raise `Failed` unless it holds."""
    if not holds:
        raise Failed(why)


def script() -> list[dict[str, Any]]:
    """What the model replies: each turn looks once and adds one line."""
    turns = [
        {
            "tool_calls": [
                {"id": f"look-{n}", "name": "counting_look", "arguments": {}},
                {"id": f"add-{n}", "name": "counting_add", "arguments": {"id": f"add-{n}"}},
            ]
        }
        for n in range(TURNS)
    ]
    return [*turns, {"text": "done"}]


class Replica:
    """One host with a folder of its own, as on a machine of its own."""

    def __init__(self, base: Path, name: str, store: str, lease: float) -> None:
        self.name = name
        self.root = base / name / "work"
        self.state = base / name / "state"
        self._options = ("--http", "127.0.0.1:0", "--lease", f"{lease:g}s")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        (self.root / "counting").mkdir(parents=True)
        (self.root / "made").mkdir()
        (base / name / "home").mkdir()
        self.log = self.root / "made" / "log"
        self.log.touch()
        (self.root / "counting" / "pack.yaml").write_text(MANIFEST)
        (self.root / "counting" / "counting.py").write_text(SOURCE)
        text = CONFIG.replace("STORE", json.dumps(store)).replace("SCRIPT", json.dumps(script()))
        (self.root / "packhost.yaml").write_text(text)
        self._env = {
            **os.environ,
            "HOME": str(base / name / "home"),
            "XDG_STATE_HOME": str(self.state),
            "PACKHOST_HOST_KEY_FILE": str(base / "host.key"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._said = (base / f"{name}.log").open("ab")

    def command(self, *arguments: str) -> str:
        """Run `packhost` in this replica's folder; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "packhost", *arguments, "-w", str(self.root)],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            start_new_session=True,
        )
        need(done.returncode == 0, f"packhost {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self) -> None:
        """Start it, and return once it listens."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "packhost", "serve", "-w", str(self.root), *self._options],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        for line in process.stderr:
            self._said.write(line)
            if b"listening on" in line:
                self.port = int(line.rsplit(b":", 1)[1])
                break
        else:
            raise Failed(f"{self.name} did not start")
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._said.write(line)
            self._said.flush()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid if self._process is not None else 0

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return self._process.wait(timeout=PATIENCE) if self._process is not None else 0

    def end(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            for number in (signal.SIGCONT, signal.SIGTERM):
                self.send(number)
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Demonstration:
    """Two replicas, a balancer before them, and a view on their store."""

    def __init__(self, base: Path, store: str, lease: float, say: Callable[[str], None]) -> None:
        (base / "host.key").write_bytes(os.urandom(32))
        self.replicas = {name: Replica(base, name, store, lease) for name in NAMES}
        self.balancer = Balancer()
        self.store: Store = open_store(store, base, "demo", Secrets({}, base=base))
        self._say = say
        self._began = time.monotonic()
        self._seen = 0
        self._owners: dict[str, str] = {}

    def open(self) -> None:
        """Accept the configuration on both, start both."""
        for replica in self.replicas.values():
            replica.command("accept", "--yes")
            replica.start()
        self.balance()

    def balance(self) -> None:
        """Tell the balancer where the replicas are."""
        self.balancer.backends = [replica.port for replica in self.replicas.values()]

    def holder(self, run_id: str) -> Replica | None:
        """The replica that runs a run now."""
        owner = self.store.read(executions.get, run_id).owner
        pids = {row.id: row.pid for row in self.store.read(replicas.listing)}
        return next((one for one in self.replicas.values() if one.pid == pids.get(owner or "")), None)

    def show(self) -> None:
        """Print what was recorded since the last time."""
        for row in self.store.read(replicas.listing):
            for one in self.replicas.values():
                if one.pid == row.pid:
                    self._owners[row.id] = one.name
        for record in self.store.read(events.page, self._seen, None, 10_000):
            self._seen = record.id
            if record.type.startswith(WORTH_SHOWING) and record.type not in ("run.state", "call.refused"):
                self._say(self._line(record))

    def _line(self, record: Any) -> str:
        data = json.loads(record.data or "{}")
        who = self._owners.get(data.get("owner") or data.get("id") or record.actor, "")
        what = " ".join(
            str(part)
            for part in (
                data.get("tool", ""),
                (data.get("arguments") or {}).get("id", ""),
                f"unknown: {len(data['unknown_calls'])}" if data.get("unknown_calls") else "",
                "handed over" if data.get("handed_over") else "",
            )
            if part
        )
        return f"{record.id:6}  {record.ts % 1000:8.3f}  {record.type:18} {who:6} {what}"

    def until(self, holds: Callable[[], Any], why: str) -> Any:
        """Wait until something holds, and show meanwhile what is recorded."""
        give_up = time.monotonic() + PATIENCE
        while not (found := holds()):
            self.show()
            need(time.monotonic() < give_up, f"{why}, within {PATIENCE:g} s")
            time.sleep(0.01)
        self.show()
        return found

    def start_run(self, session: str) -> str:
        """Start a run in the background, as a client does, through the balancer."""
        turn = {
            "messages": [{"role": "user", "content": "count"}],
            "loop": True,
            "background": True,
            "session_id": session,
        }

        async def start() -> Any:
            async with Client(f"http://127.0.0.1:{self.balancer.port}/mcp") as client:
                return await client.call_tool("agent-runtime_execute-turn", turn)

        result = anyio.run(start)
        for _ in range(20):  # a host that is just coming back says to make the call again
            if "TOOL_INTENT_NOT_COMMITTED" not in str(result.content):
                break
            time.sleep(0.2)
            result = anyio.run(start)
        need(not result.is_error, f"the run did not start: {result.content}")
        return str(result.structured_content["run_id"])

    def take_away(self, run_id: str, how: str, after: float) -> tuple[Replica, float]:
        """Take the replica that runs the run away, some time after its first call; which, and when."""
        self.until(lambda: self.store.read(calls.of_execution, run_id), "a first call is made")
        time.sleep(after)
        held = self.holder(run_id)
        victim = held or next(iter(self.replicas.values()))
        row = self.store.read(executions.get, run_id)
        if not row.ended:
            need(held, f"somebody runs {run_id}, which is {row.status}")
        number = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}[how]
        self.show()
        self._say(f"------  {signal.Signals(number).name} to {victim.name} (process {victim.pid})")
        at = time.monotonic()
        victim.send(number)
        return victim, at

    def round(self, number: int, how: str, after: float) -> str:
        """One run, one replica taken away; a sentence on what came of it. Raises `Failed`."""
        run_id = self.start_run(f"round-{number}")
        victim, at = self.take_away(run_id, how, after)
        back = threading.Thread(target=self._come_back, args=(victim, how))
        if how != "stop":
            back.start()
        row = self.until(lambda: self._ended(run_id), "the run goes on elsewhere and ends")
        took = time.monotonic() - at
        if how == "stop":
            victim.send(signal.SIGCONT)
            self._say(f"------  SIGCONT to {victim.name}")
            self._registered(victim)
        else:
            back.join()
            self.balance()
            self._registered(victim)
        return f"{self.prove(run_id, row)}; ended {took:.1f} s after {victim.name} was taken away"

    def _come_back(self, victim: Replica, how: str) -> None:
        code = victim.wait()
        if how == "term":
            need(code == 0, f"{victim.name} ended with {code} when it was told to stop")
        victim.start()

    def _registered(self, replica: Replica) -> None:
        def there() -> bool:
            now = self.store.now()
            rows = self.store.read(replicas.listing)
            return any(row.pid == replica.pid and row.lease_until > now for row in rows)

        self.until(there, f"{replica.name} is registered")

    def _ended(self, run_id: str) -> Any:
        row = self.store.read(executions.get, run_id)
        return row if row.ended else None

    def prove(self, run_id: str, row: Any) -> str:
        """Hold the effects in the files against the journal, and the journal against what was told."""
        need(row.outcome == "completed", f"run {run_id} ended {row.status}: {row.outcome}, {row.reason}")
        lines = [line.split() for one in self.replicas.values() for line in one.log.read_text().splitlines()]
        effects = Counter(line[1] for line in lines if line[0] == run_id)
        told = self._told(row.session_id)
        known = Counter[str]()
        for call in self.store.read(calls.of_execution, run_id):
            need(call.status != "started", f"call {call.id} has no end")
            if call.tool != "counting:add":
                continue
            known[call.status] += 1
            made = effects.pop(call.tool_use_id or "", 0)
            need(
                made == 1 if call.status == "ok" else made <= 1,
                f"{call.tool_use_id}: {call.status}, {made} times",
            )
            word = told[call.tool_use_id or ""].partition(":")[0]
            need((word == "EFFECTS_UNKNOWN") == (call.status != "ok"), f"{call.tool_use_id}: told {word}")
        need(not effects, f"effects without a call in the journal: {dict(effects)}")
        need(len(told) == 2 * TURNS, f"{len(told)} results for {2 * TURNS} calls")
        took_up = sum(
            event.type == "run.running" for event in self.store.read(events.page, 0, run_id, 10_000)
        )
        done = ", ".join(f"{count} {status}" for status, count in sorted(known.items()))
        return f"run of {TURNS} writes: {done}; no effect lost, none doubled; held by {took_up} hosts in turn"

    def _told(self, session_id: str) -> dict[str, str]:
        results: dict[str, str] = {}
        for kept in self.store.read(sessions.history, session_id):
            for block in kept.message["content"]:
                if block["type"] == "tool_result":
                    need(block["tool_use_id"] not in results, f"{block['tool_use_id']} has two results")
                    results[block["tool_use_id"]] = block["content"]
        return results

    def close(self) -> None:
        """End everything."""
        self.balancer.close()
        for replica in self.replicas.values():
            replica.end()
        self.store.close_now()  # type: ignore[attr-defined]


@contextmanager
def database(given: str | None) -> Iterator[str]:
    """The store's address: what was given, or a server for the time of the demonstration."""
    if given is not None:
        yield given
        return
    from postgres_server import own_server

    with own_server() as server:
        yield server.url()


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", metavar="URL", help="a PostgreSQL store, `postgresql://…?workspace=NAME`")
    parser.add_argument("--rounds", type=int, default=1, help="so many runs, one after another")
    parser.add_argument(
        "--how", choices=("kill", "term", "stop", "mixed"), default="kill", help="how a host is taken away"
    )
    parser.add_argument("--lease", type=float, default=1.5, help="seconds after which a host counts as lost")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at random")
    parser.add_argument("--quiet", action="store_true", help="a line for each round, no event log")
    parser.add_argument("--keep", action="store_true", help="keep the folders, and say where they are")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="packhost-two-"))
    chance = random.Random(options.seed)
    print_line = lambda text: print(text, flush=True)  # noqa: E731
    try:
        with ExitStack() as stack:
            store = stack.enter_context(database(options.store))
            shown = Demonstration(
                base, store, options.lease, (lambda _: None) if options.quiet else print_line
            )
            stack.callback(shown.close)
            shown.open()
            for number in range(options.rounds):
                how = (
                    chance.choice(("kill", "kill", "term", "stop")) if options.how == "mixed" else options.how
                )
                after = 0.4 if options.rounds == 1 else chance.uniform(0.0, 0.9)
                print_line(f"round {number + 1} ({how}): {shown.round(number, how, after)}")
    except Failed as failed:
        print_line(f"FAILED: {failed}")
        for name in NAMES:
            print_line(f"--- {name}\n{(base / f'{name}.log').read_text(errors='replace')[-4000:]}")
        return 1
    finally:
        if options.keep:
            print_line(f"kept: {base}")
        else:
            shutil.rmtree(base, ignore_errors=True)
    print_line("no effect was lost and none was doubled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
