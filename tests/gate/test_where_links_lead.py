"""Links that a tool has a person open: the host that they read is the one that a browser goes to."""

from __future__ import annotations

import pytest

from packhost.gate.eliciting import fault_of
from packhost.kinds.eliciting import Elicitation


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/pay?order=1#there",
        "https://shop.example:8443/",
        "https://[2001:db8::1]/pay",
        "https://xn--bcher-kva.example/",
        "http://127.0.0.1:4000/",
    ],
)
def test_a_plain_address_can_be_opened(url: str) -> None:
    assert fault_of(Elicitation("Pay.", url=url)) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example\\.shop.example/",  # a browser takes `\` for `/`
        "https://evil.example\\@shop.example/",
        "https://shop.example@evil.example/",
        "https://evil.example%2f.shop.example/",
        "https://evil.example\t/",  # a browser leaves it out
        "https://evil\u3002example/",  # a browser takes it for a full stop
        "https://evil.example|.shop.example/",
        "https:evil.example",
        "javascript:alert(1)",
        "http://shop.example/",
    ],
)
def test_one_that_a_browser_reads_otherwise_is_put_to_nobody(url: str) -> None:
    assert fault_of(Elicitation("Pay.", url=url)) is not None
