"""The connection to a provider, against a real HTTP server on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from packhost.errors import ConfigInvalid
from packhost.executions.connections import HostConnection, named_together
from packhost.store.ops import events

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "done"}
THINKING = {"type": "thinking", "thinking": "…", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "tu_1", "name": "lab_note", "input": {"z": 1, "a": [1.0, None]}}
SECRET = "sk-very-secret"


@pytest.fixture
def told(lab: Any, provider: Any) -> Any:
    """The lab with the fake provider as its default model."""
    lab.secrets["KEY"] = SECRET
    lab.section["default_model"] = "main"
    lab.section["models"] = {
        "main": {
            "provider": "messages_compatible",
            "model": "m-1",
            "base_url": provider.base_url,
            "api_key": "KEY",
            "max_tokens": 77,
        }
    }
    return lab


async def test_a_loop_over_http_sends_the_key_and_gives_thinking_back_unmodified(
    told: Any, provider: Any
) -> None:
    provider.message([THINKING, USE], "tool_use")
    provider.message([TEXT])
    outcome = await told.turn(loop=True)
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "done")
    assert outcome.value["usage"] == {"input_tokens": 10, "output_tokens": 4}
    first, second = provider.received
    assert first.path == "/v1/messages"
    assert first.headers["x-api-key"] == SECRET
    assert first.headers["anthropic-version"] == "2023-06-01"
    assert first.headers["accept-encoding"] == "identity"
    assert first.body["max_tokens"] == 77
    assert {tool["name"] for tool in first.body["tools"]} == {"lab_look", "lab_note"}
    assert second.body["messages"][: len(first.body["messages"])] == first.body["messages"]
    assert second.body["tools"] == first.body["tools"]
    asked, answer = second.body["messages"][1:]
    assert asked["content"] == [THINKING, USE]
    assert list(asked["content"][1]["input"]) == ["z", "a"]
    assert [block["type"] for block in answer["content"]] == ["tool_result"]
    assert answer["content"][0]["tool_use_id"] == "tu_1"


@pytest.mark.parametrize("status", [400, 429, 500, 529])
async def test_an_error_of_the_provider_ends_the_run_once_and_does_not_show_the_key(
    told: Any, provider: Any, status: int
) -> None:
    provider.raw(f'{{"error": {{"message": "bad key {SECRET}"}}}}'.encode(), status)
    outcome = await told.turn(loop=True, limits={"max_retries": 0})
    value = outcome.value
    assert (value["outcome"], value["error"]["status"]) == ("provider_error", status)
    assert len(provider.received) == 1
    row = told.row(value["run_id"])
    assert row.status == "failed"
    assert SECRET not in str(outcome) + str(row)
    assert SECRET not in str([event.data for event in _events(told)])


async def test_a_redirect_is_not_followed(told: Any, provider: Any) -> None:
    provider.raw(b"", 307, {"location": f"{provider.base_url}/elsewhere"})
    outcome = await told.turn()
    assert outcome.value["error"]["status"] == 307
    assert len(provider.received) == 1


async def test_a_reply_that_breaks_off_runs_nothing(told: Any, provider: Any) -> None:
    provider.cut()
    outcome = await told.turn(loop=True)
    assert (outcome.value["outcome"], told.calls(outcome.value["run_id"])) == ("provider_error", ())


async def test_a_reply_is_bounded_in_bytes(told: Any, provider: Any) -> None:
    provider.message([{"type": "text", "text": "x" * (8 * 1024 * 1024)}])
    outcome = await told.turn()
    assert outcome.value["outcome"] == "limit_exceeded"
    assert outcome.value["error"]["issue"] == "LIMIT_RESPONSE_BYTES"


async def test_a_provider_that_never_ends_its_reply_is_left_at_the_deadline(told: Any, provider: Any) -> None:
    told.section["models"]["main"]["timeout"] = "100ms"
    provider.stall(after=b'{"type": ')
    with anyio.fail_after(5):
        outcome = await told.turn()
    assert outcome.value["outcome"] == "provider_error"
    assert "0.1 seconds" in outcome.value["error"]["message"]


async def test_the_runs_own_time_cuts_a_reply_short(told: Any, provider: Any) -> None:
    provider.stall()
    with anyio.fail_after(5):
        outcome = await told.turn(limits={"wall_clock": 0.2})
    assert (outcome.value["outcome"], outcome.value["error"]["issue"]) == (
        "limit_exceeded",
        "BUDGET_WALL_CLOCK",
    )


async def test_an_abort_in_a_body_read_ends_the_run_and_the_connection(
    told: Any, provider: Any, person: Callable[..., Any]
) -> None:
    provider.stall(after=b'{"type": ')
    run_id = await told.background()
    assert await anyio.to_thread.run_sync(provider.asked.wait, 5)
    with anyio.fail_after(1):
        view = await told.runs.abort_by_person(run_id, by="ann")
    assert (view.status, view.outcome) == ("aborted", "cancelled")
    assert await anyio.to_thread.run_sync(provider.gone.wait, 5)


async def test_a_provider_that_is_not_there_is_a_provider_error(told: Any, provider: Any) -> None:
    provider.close()
    told.section["models"]["main"]["base_url"] = "http://127.0.0.1:9"
    outcome = await told.turn(limits={"max_retries": 0})
    assert outcome.value["outcome"] == "provider_error"
    assert "cannot be reached" in outcome.value["error"]["message"]


@pytest.mark.parametrize("value", ["", "two\nlines", "käse"])
async def test_a_key_that_no_header_can_carry_is_never_sent_or_shown(
    told: Any, provider: Any, value: str
) -> None:
    told.secrets["KEY"] = value
    outcome = await told.turn()
    assert provider.received == []
    assert outcome.value["error"]["message"].startswith("the provider's key is empty or holds")


@pytest.mark.parametrize(
    ("base_url", "secret", "together"),
    [
        ("https://a", "KEY_A", True),
        ("https://a", "KEY_B", False),
        ("https://b", "KEY_A", False),
        ("https://a", None, False),
        ("https://c", None, True),
        ("https://c", "KEY_A", False),
        ("https://a/", "KEY_A", False),
    ],
)
def test_a_key_goes_only_where_one_profile_names_both(
    base_url: str, secret: str | None, together: bool
) -> None:
    section = {
        "models": {
            "a": {"base_url": "https://a", "api_key": "KEY_A"},
            "b": {"base_url": "https://b", "api_key": "KEY_B"},
            "c": {"base_url": "https://c"},
        }
    }
    assert named_together(section, base_url, secret) is together


@pytest.mark.parametrize(
    "url", ["ftp://h", "https://", "https://u:p@h", "https://h/?q=1", "h", "file:///etc"]
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        HostConnection(url, None, "x-api-key")


def _events(lab: Any) -> Any:
    return lab.store.read(events.page, 0, None, 1000)
