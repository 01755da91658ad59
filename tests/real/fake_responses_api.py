"""A provider that speaks the Responses API and answers by a script: one call a request, then a text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NamespacedCall:
    """One tool call of the script."""

    namespace: str
    tool: str
    arguments: Json = field(default_factory=dict)


class FakeResponsesApi:
    """A context manager: `with FakeResponsesApi([...]) as api: ... api.url ... api.outputs`."""

    def __init__(self, script: Sequence[NamespacedCall]) -> None:
        self.script = list(script)
        self.bodies: list[Json] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def outputs(self) -> list[str]:
        """What the calls returned, oldest first."""
        last = self.bodies[-1]["input"] if self.bodies else []
        return [str(item["output"]) for item in last if item.get("type") == "function_call_output"]

    @property
    def offered(self) -> dict[str, list[str]]:
        """The tools of the last request by namespace; those without one under their own names."""
        found: dict[str, list[str]] = {}
        for tool in self.bodies[-1].get("tools", []) if self.bodies else []:
            found[str(tool.get("name") or tool["type"])] = [one["name"] for one in tool.get("tools", [])]
        return found

    def __enter__(self) -> FakeResponsesApi:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    def answer(self, body: Json) -> Iterator[tuple[str, Json]]:
        """The events of one response."""
        self.bodies.append(body)
        done = len(self.outputs)
        number = len(self.bodies)
        item: Json = {
            "type": "message",
            "role": "assistant",
            "id": f"m{number}",
            "content": [{"type": "output_text", "text": "nothing to do"}],
        }
        if done < len(self.script):
            call = self.script[done]
            item = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}"}
            item |= {"namespace": call.namespace, "name": call.tool, "arguments": json.dumps(call.arguments)}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield "response.created", {"response": {"id": f"r{number}"}}
        yield "response.output_item.done", {"item": item}
        yield "response.completed", {"response": {"id": f"r{number}", "usage": usage}}


def _handler(api: FakeResponsesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._start("application/json")
            self.wfile.write(b'{"models": [], "data": []}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)))
            self._start("text/event-stream")
            for kind, data in api.answer(body):
                self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())

        def _start(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()

    return Handler
