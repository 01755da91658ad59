"""The public keys of identity assertions, where those who check them look."""

from __future__ import annotations

import contextlib
from typing import Any

from starlette.testclient import TestClient

from packhost.kinds.identity import Identity
from packhost.transports.http import build_app


class Unused:
    """Stands where a server is never reached."""

    def lifespan(self, _: object) -> Any:
        return contextlib.nullcontext({})


PATH = "/.well-known/jwks.json"


def test_anybody_who_reaches_the_address_reads_the_public_keys_and_no_more() -> None:
    identity = Identity(b"k" * 32, "i")
    with TestClient(build_app(Unused(), "1", keys=identity.jwks), base_url="http://127.0.0.1:80") as client:
        answer = client.get(PATH)
        assert client.post(PATH).status_code == 405
        assert client.get(PATH, headers={"host": "evil.example"}).status_code == 421
        assert client.get("/mcp").status_code == 401
    assert (answer.status_code, answer.json()) == (200, identity.jwks())
    assert answer.headers["cache-control"] == "max-age=300"
