"""An MCP server on stdio in the standard library alone, which starts at once and behaves as it is told.

    python plain_server.py TOOLS.json [BEHAVIOUR]...

TOOLS.json holds a list of tool definitions and is read again for each `tools/list`. Behaviours: `modern`
speaks the stateless era too, `noise` writes to stdout what is no protocol, `hang` never answers a listing,
`die` ends before it answers, `endless` lists pages without an end, `deaf` hangs every other request while one
call hangs, and `instructions` says something of itself. With a call it tells of tools that have changed since
it listed them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

LEGACY, MODERN = "2025-11-25", "2026-07-28"


class Server:
    def __init__(self, tools: Path, behaviours: set[str]) -> None:
        self.tools = tools
        self.behaviours = behaviours
        self.cancelled: dict[Any, threading.Event] = {}
        self.lock = threading.Lock()
        self.listed = ""

    def send(self, message: dict[str, Any]) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def serve(self) -> None:
        if "noise" in self.behaviours:
            print("Server is starting…", flush=True)
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "notifications/cancelled":
                self.cancelled.setdefault(message["params"]["requestId"], threading.Event()).set()
            elif "id" not in message or "method" not in message:
                continue
            elif message["method"] == "tools/call" and "deaf" not in self.behaviours:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            else:
                self.answer(message)

    def answer(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        try:
            result = self.result(message["method"], params, message["id"])
        except KeyError:
            self.send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            return
        if result is not None:
            if "modern" in self.behaviours:
                result = {"resultType": "complete", **result}
            self.send({"id": message["id"], "result": result})

    def result(self, method: str, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
        if method == "server/discover" and "modern" in self.behaviours:
            return {"supportedVersions": [MODERN], **self.about()}
        if method == "initialize":
            if "die" in self.behaviours:
                print("no licence found", file=sys.stderr, flush=True)
                os._exit(3)
            return {"protocolVersion": LEGACY, **self.about()}
        if method == "ping":
            return {}
        if method == "tools/list":
            return self.listing()
        if method == "tools/call":
            return self.call(params, number)
        raise KeyError(method)

    def about(self) -> dict[str, Any]:
        said = {
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "plain", "version": "1.2.3"},
        }
        return said | ({"instructions": "Use it well."} if "instructions" in self.behaviours else {})

    def listing(self) -> dict[str, Any]:
        while "hang" in self.behaviours:
            time.sleep(60)
        self.listed = self.tools.read_text()
        found = {"tools": json.loads(self.listed)}
        if "modern" in self.behaviours:
            found |= {"ttlMs": 0, "cacheScope": "private"}
        return found | ({"nextCursor": "more"} if "endless" in self.behaviours else {})

    def call(self, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
        arguments = params.get("arguments") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        if params["name"] == "wait":
            if token is not None:
                progress = {"progressToken": token, "progress": 1, "total": 2}
                self.send({"method": "notifications/progress", "params": progress})
            if self.cancelled.setdefault(number, threading.Event()).wait(30):
                return None
        if params["name"] == "large":
            return {"content": [{"type": "text", "text": "x" * int(arguments["size"])}]}
        if self.tools.read_text() != self.listed:
            self.send({"method": "notifications/tools/list_changed"})
        said = {"tool": params["name"], "arguments": arguments, "secret": os.environ.get("THE_TOKEN", "")}
        return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}


if __name__ == "__main__":
    Server(Path(sys.argv[1]), set(sys.argv[2:])).serve()
