"""What `webhooks` of packhost.yaml may say."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import pytest
from pydantic import ValidationError

from packhost.errors import ConfigInvalid
from packhost.webhooks.signing import headers_of, key_of
from packhost.workspace.config import load_settings
from packhost.workspace.hooks import WebhookSettings

SOUND: dict[str, Any] = {"url": "https://example.org/h", "events": ["run.paused"], "secret": "KEY"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://example.org/h"},
        {"url": "https://ann:word@example.org/h"},
        {"url": "ftp://example.org/h"},
        {"url": "example.org"},
        {"url": "https://example.org/h#part"},
        {"events": []},
        {"events": ["approval.dreamt"]},
        {"secret": ""},
        {"colour": "red"},
        {"console": "javascript:alert(1)"},
    ],
)
def test_what_is_no_endpoint_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WebhookSettings.model_validate({**SOUND, **wrong})


def test_an_inner_address_may_be_plain() -> None:
    inner = {**SOUND, "url": "http://127.0.0.1:9000/h", "private": True}
    assert WebhookSettings.model_validate(inner).url == "http://127.0.0.1:9000/h"


def test_the_file_names_the_place_of_a_mistake() -> None:
    hook = "{url: http://example.org, events: [run.paused], secret: KEY}"
    text = f"packhost: 1\nwebhooks:\n  team: {hook}\n".encode()
    with pytest.raises(ConfigInvalid) as invalid:
        load_settings(text)
    assert "not encrypted" in str(invalid.value)
    assert invalid.value.place is not None


def test_a_signature_is_over_id_time_and_body() -> None:
    key = key_of("whsec_" + base64.b64encode(b"k" * 24).decode())
    headers = headers_of("msg_1", 1700000000.9, b"{}", key)
    digest = base64.b64encode(hmac.digest(b"k" * 24, b"msg_1.1700000000.{}", "sha256")).decode()
    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{digest}",
    }
