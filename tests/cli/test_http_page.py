"""The page of the kind `http`: its example is called as it stands there, but for the host."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from https_server import CA, Server, in_json, serving

from packhost.kinds.http_config import HttpConfig

PAGE = (Path(__file__).parents[2] / "docs/kinds/http.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S))
HOST = "api.example.org"


@pytest.fixture
def server() -> Iterator[Server]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving("127.0.0.1")) as one:
        one.says("/v1/cities/S%C3%A3o%2FPaulo/reports", in_json({"id": 7}, "201 Created"))
        one.says("/v1/current", in_json({"degrees": 31.5}))
        yield one


@pytest.fixture
def weather(
    empty: Path,
    packhost: Callable[..., Any],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Path:
    """The page's workspace, accepted; its API is the server."""
    (empty / "packs/weather").mkdir(parents=True)
    for name in ("packs/weather/pack.yaml", "packhost.yaml"):
        text = EXAMPLES[name].replace(HOST, f"127.0.0.1:{server.port}")
        (empty / name).write_text(text)
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("WEATHER_KEY", "the-weather-key")
    assert packhost("accept", "--yes").status == 0
    return empty


def test_the_call_of_the_page_prints_what_it_says_and_sends_what_it_says(
    weather: Path, packhost: Callable[..., Any], server: Server
) -> None:
    line, _, expected = EXAMPLES["console"].partition("\n")
    ran = packhost(*line.removeprefix("$ packhost ").split(" ", 2))
    assert (ran.status, ran.out) == (0, expected)
    (asked,) = server.asked
    said = re.search(r"What arrives is `(\S+) (\S+)` with the body\n`(.*?)`", PAGE)
    assert said is not None
    assert (asked.method, asked.path) == (said[1], said[2])
    assert asked.body.decode() == said[3].replace("USER", getpass.getuser())
    assert asked.headers["authorization"] == "Bearer the-weather-key"


def test_the_other_tool_of_the_page_reads_with_its_defaults_and_hidden_parameter(
    weather: Path, packhost: Callable[..., Any], server: Server
) -> None:
    ran = packhost("call", "weather:current", '{"city": "Oslo & more"}')
    assert ran.status == 0
    assert '"degrees": 31.5' in ran.out or '{"degrees":31.5}' in ran.out
    assert server.asked[0].path == "/v1/current?city=Oslo%20%26%20more&units=metric"
    assert server.asked[0].headers["x-account"] == "acme"
    shown = packhost("tools", "show", "weather:current", "--json").json
    assert shown["enforcement"] == "host"
    assert packhost("doctor").status == 0


def test_the_python_of_the_page_runs() -> None:
    exec(compile(EXAMPLES["python"], "http.md", "exec"), {})


def test_the_page_names_every_key_of_config_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.split("## `config`")[1], re.M))
    assert rows.keys() == HttpConfig.model_fields.keys()
    for name, field in HttpConfig.model_fields.items():
        said = rows[name].strip("`")
        if name == "max_response_bytes":
            assert (said, field.default) == ("4MiB", 4 * 1024**2)
        elif field.default not in (None, False) and isinstance(field.default, str | bool):
            assert said == json.dumps(field.default).strip('"')
