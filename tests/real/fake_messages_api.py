"""A small Messages API on loopback that plays a script, to drive a real client.

The script is a list of tool calls. A request whose conversation holds N tool results gets call N of the
script, if that tool is on offer; when the script is through, the answer is a text that repeats the last
result. Requests are kept for the test to look at. The server ends with its `with` block, and by itself after
`lifetime` seconds.

Alone: `python fake_messages_api.py PORT`, with the one call in `FAKE_TOOL` and `FAKE_ARGUMENTS`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call that the model of this script asks for; `tool` is the name as the client offers it."""

    tool: str
    arguments: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: Json

    @property
    def offered(self) -> list[str]:
        """Names of the tools on offer."""
        return [tool.get("name", "") for tool in self.body.get("tools", [])]

    @property
    def results(self) -> list[Json]:
        """Every tool result of the conversation, oldest first."""
        return [
            block
            for message in self.body.get("messages", [])
            if isinstance(message.get("content"), list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]


def result_text(result: Json) -> str:
    """The text of a tool result, whichever of its two forms it has."""
    content = result.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content)


class FakeMessagesApi:
    """A context manager: `with FakeMessagesApi([ScriptedCall(...)]) as api: ... api.url ... api.requests`."""

    def __init__(
        self, script: Sequence[ScriptedCall] = (), *, port: int = 0, lifetime: float = 120.0
    ) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._end = threading.Timer(lifetime, self._server.shutdown)
        self._end.daemon = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def results(self) -> list[Json]:
        """The tool results of the longest conversation seen."""
        return max((request.results for request in self.requests), key=len, default=[])

    @property
    def offered(self) -> set[str]:
        """Every tool that any request offered."""
        return {name for request in self.requests for name in request.offered}

    def __enter__(self) -> FakeMessagesApi:
        self._thread.start()
        self._end.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.cancel()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    def wait(self) -> None:
        """Blocks until the server has ended by itself."""
        self._thread.join()

    def answer(self, request: Request) -> Json:
        """The assistant's message for a request: a call of the script or a text."""
        done = len(request.results)
        block: Json = {"type": "text", "text": "nothing to do"}
        reason = "end_turn"
        if done < len(self.script) and self.script[done].tool in request.offered:
            call = self.script[done]
            block = {
                "type": "tool_use",
                "id": f"toolu_{done + 1:04d}",
                "name": call.tool,
                "input": call.arguments,
            }
            reason = "tool_use"
        elif done:
            block["text"] = f"the tool answered: {result_text(request.results[-1])}"
        return {
            "id": f"msg_{len(self.requests):04d}",
            "type": "message",
            "role": "assistant",
            "model": request.body.get("model", "scripted"),
            "content": [block],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }


def events(message: Json) -> Iterator[Json]:
    """A whole message as the events of a stream."""
    start = {**message, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        if block["type"] == "tool_use":
            head = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            head = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_start", "index": index, "content_block": head}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _handler(api: FakeMessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._send(200, "application/json", b"")

        def do_GET(self) -> None:
            self._send_json(
                404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}}
            )

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = Request(self.path.split("?")[0], dict(self.headers), json.loads(raw or b"{}"))
            if request.path.endswith("/v1/messages/count_tokens"):
                self._send_json(200, {"input_tokens": 10})
            elif not request.path.endswith("/v1/messages"):
                self._send_json(
                    404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}}
                )
            else:
                api.requests.append(request)
                self._send_message(api.answer(request), stream=bool(request.body.get("stream")))

        def _send_message(self, message: Json, *, stream: bool) -> None:
            if not stream:
                return self._send_json(200, message)
            frames = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(message))
            return self._send(200, "text/event-stream", "".join(frames).encode())

        def _send_json(self, status: int, body: Json) -> None:
            self._send(status, "application/json", json.dumps(body).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    call = ScriptedCall(os.environ["FAKE_TOOL"], json.loads(os.environ.get("FAKE_ARGUMENTS", "{}")))
    with FakeMessagesApi([call], port=int(sys.argv[1]), lifetime=600) as api:
        print(api.url, flush=True)
        api.wait()


if __name__ == "__main__":
    main()
