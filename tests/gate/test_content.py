"""Content blocks as the result of a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.gate.types import Completed, Refusal
from packhost.kinds.content import Content
from packhost.kinds.untrusted import UNTRUSTED
from packhost.store.ops import calls

pytestmark = pytest.mark.anyio
TEXT = {"type": "text", "text": "two\nlines"}
PICTURE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "demo://one", "name": "one"}


def returning(bench: Any, content: Any, **spec: Any) -> None:
    async def handler(*_: Any) -> Any:
        return content

    bench.tool("show", handler, **spec)


async def test_text_is_read_as_it_is_and_kept_as_json(bench: Any) -> None:
    returning(bench, Content((TEXT,)))
    done = await bench.call("show")
    assert isinstance(done, Completed)
    assert (done.value, done.text, done.blocks) == ("two\nlines", "two\nlines", (TEXT,))
    await bench.store.flush()
    row = bench.store.read(calls.by_id, done.call_id)
    assert json.loads(row.result_json) == "two\nlines"


async def test_other_blocks_are_the_value_where_there_is_no_data(bench: Any) -> None:
    returning(bench, Content((TEXT, PICTURE, LINK)))
    done = await bench.call("show")
    assert isinstance(done, Completed)
    assert done.value == [TEXT, PICTURE, LINK]
    assert done.text == "two\nlines\n[image, image/png, 6 bytes]\n[one: demo://one]"


async def test_data_beside_blocks_is_the_value_and_what_the_schema_speaks_of(bench: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    returning(bench, Content((TEXT,), {"n": 1}), output_schema=schema)
    done = await bench.call("show")
    assert isinstance(done, Completed)
    assert (done.value, done.text) == ({"n": 1}, "two\nlines")
    for wrong in (Content((TEXT,), {"n": "1"}), Content((TEXT,))):
        returning(bench, wrong, output_schema=schema)
        refused = await bench.call("show")
        assert isinstance(refused, Refusal)
        assert refused.code == "OUTPUT_INVALID"


async def test_a_secret_is_in_no_block(bench: Any) -> None:
    bench.secret_values["KEY"] = "s3cret"
    returning(bench, Content(({"type": "text", "text": "it is s3cret"},), {"key": "s3cret"}))
    done = await bench.call("show")
    assert isinstance(done, Completed)
    assert "s3cret" not in json.dumps([done.value, done.text, done.blocks])


async def test_text_that_nobody_vouches_for_is_marked_in_each_block(bench: Any) -> None:
    held = {"type": "resource", "resource": {"uri": "demo://one", "text": "more"}}
    returning(bench, Content((TEXT, held, PICTURE)), untrusted_output=True)
    done = await bench.call("show")
    assert isinstance(done, Completed)
    assert done.text.startswith(f"<{UNTRUSTED} ")
    assert done.blocks[0]["text"].startswith(f"<{UNTRUSTED} ")
    assert done.blocks[1]["resource"]["text"].startswith(f"<{UNTRUSTED} ")
    assert done.blocks[2] == PICTURE


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram"},
        {"type": "text"},
        {"type": "image", "data": "aa"},
        {"type": "resource", "resource": {"uri": "demo://one"}},
        {"type": "resource", "resource": {"uri": "demo://one", "text": "a", "blob": "a"}},
        "text",
    ],
)
async def test_a_block_of_no_known_form_is_an_invalid_output(bench: Any, block: Any) -> None:
    returning(bench, Content((block,)))
    refused = await bench.call("show")
    assert isinstance(refused, Refusal)
    assert refused.code == "OUTPUT_INVALID"


async def test_blocks_count_against_the_size_of_a_result(bench: Any) -> None:
    returning(bench, Content(({**PICTURE, "data": "a" * (1 << 20)},)))
    refused = await bench.call("show")
    assert isinstance(refused, Refusal)
    assert refused.code == "OUTPUT_TOO_LARGE"
