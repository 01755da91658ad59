"""Webhooks of a real host: told while a call waits, and by the next host what one could not tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

pytestmark = pytest.mark.slow
KEY = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {{tool: "workspace:write_file"}}
    decide: ask
    reason: a person looks at what is written
approvals: {{hold: 20s}}
secrets: {{TEAM_HOOK: env:TEAM_HOOK}}
webhooks:
  team:
    url: http://127.0.0.1:{port}/hook
    events: [approval.requested, approval.decided]
    secret: TEAM_HOOK
    private: true
"""


class Team:
    """Whoever is told; takes nothing while `busy`."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.busy = False
        self.refused = threading.Event()
        self._news = threading.Condition()
        team = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if team.busy:
                    self.send_response(503)
                    team.refused.set()
                else:
                    team.take(Webhook(KEY).verify(body, dict(self.headers)))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing is said."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, event: dict[str, Any]) -> None:
        with self._news:
            self.told.append(event)
            self._news.notify_all()

    def until(self, count: int) -> list[dict[str, Any]]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.told) >= count, 30), self.told
        return self.told


@pytest.fixture
def team() -> Iterator[Team]:
    """An endpoint on this machine."""
    made = Team()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_team_is_told_who_is_asked_and_what_was_decided(world: Any, team: Team) -> None:
    world.env["TEAM_HOOK"] = KEY
    world.write("packhost.yaml", SETTINGS.format(port=team.server.server_port))
    world.accept()
    client = world.raw("legacy").start()
    # the host looks for endpoints by the time that it was asked twice
    assert world.run("webhooks", "test", "team").stdout.endswith("team answered 204\n")
    client.call("workspace_write_file", path="src/a.txt", content="hello\n")
    asked = team.until(2)[1]
    assert (asked["type"], asked["data"]["status"]) == ("approval.requested", "pending")
    assert asked["data"]["preview"][1] == "Would do: +hello"
    world.run("approvals", "deny", asked["data"]["id"])
    decided = team.until(3)[2]
    assert (decided["type"], decided["data"]["status"]) == ("approval.decided", "denied")


def test_what_one_host_could_not_tell_the_next_one_tells(world: Any, team: Team) -> None:
    world.env["TEAM_HOOK"] = KEY
    world.write("packhost.yaml", SETTINGS.format(port=team.server.server_port))
    world.accept()
    first = world.raw("legacy").start()
    world.run("webhooks", "test", "team")
    team.busy = True
    first.call("workspace_write_file", path="src/a.txt", content="hello\n")
    assert team.refused.wait(20)
    first.kill()
    team.busy = False
    world.raw("legacy").start()
    told = team.until(2)[1]
    assert told["type"] == "approval.requested"
    deliveries = world.json("webhooks", "list")["webhooks"][0]["deliveries"]
    assert [one["type"] for one in deliveries].count("approval.requested") == 1
