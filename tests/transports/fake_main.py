"""A host in a process of its own: `stdio`, `http HOST:PORT` or `relay SOCKET`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from packhost.errors import PackhostError
from packhost.transports.relay import relay_stdio

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))


async def serve(mode: str, *rest: str) -> int:
    from fake_host import FakeHost

    from packhost.server.mcp import build_server
    from packhost.transports.stdio import serve_stdio

    class NoisyHost(FakeHost):
        """Prints where it should not."""

        def status(self):
            print("to stdout, from a handler", flush=True)
            return super().status()

    code = 0
    async with anyio.create_task_group() as tasks:
        server = build_server(NoisyHost(tasks))
        if mode == "stdio":
            await serve_stdio(server)
        else:
            from packhost.transports.http import serve_http

            try:
                await serve_http(server, rest[0], version="1.2.3")
            except PackhostError as error:
                sys.stderr.write(f"{error.code} {error}\n")
                code = 2
        tasks.cancel_scope.cancel()
    return code


async def main(mode: str, *rest: str) -> int:
    return await (relay_stdio(Path(rest[0]), patience=1) if mode == "relay" else serve(mode, *rest))


if __name__ == "__main__":
    sys.exit(anyio.run(main, *sys.argv[1:]))
