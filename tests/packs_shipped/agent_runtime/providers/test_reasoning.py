"""Reasoning details, merged as they were cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.reasoning import Details


def text(piece: str, **members: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": piece, **members}


SIGNED = {"type": "reasoning.text", "signature": "c2ln", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "ZQ==", "id": "rs_1", "format": "f", "index": 1}


@pytest.mark.parametrize(
    ("fragments", "merged"),
    [
        ([text("a", index=0), text("b", index=0), SIGNED], [text("ab", index=0, signature="c2ln")]),
        (
            [text("b", index=1), text("a", index=0), text("B", index=1)],
            [text("a", index=0), text("bB", index=1)],
        ),
        ([text("a", index=0), SEALED], [text("a", index=0), SEALED]),
        (
            [{**SEALED, "index": 0}, {**SEALED, "index": 0, "id": "rs_2"}],
            [{**SEALED, "index": 0}, {**SEALED, "index": 0, "id": "rs_2"}],
        ),
        ([text("a", index=0), text("b", index=0, id="r")], [text("ab", index=0, id="r")]),
        ([text("a"), text("b"), {"type": "reasoning.text", "signature": "s"}], [text("ab", signature="s")]),
        ([text("a", signature="s"), text("b")], [text("a", signature="s"), text("b")]),
        ([text("a", signature=None, index=0), SIGNED], [text("a", signature="c2ln", index=0)]),
        (
            [{"type": "reasoning.summary", "summary": "x", "index": 0}, text("a", index=0)],
            [{"type": "reasoning.summary", "summary": "x", "index": 0}, text("a", index=0)],
        ),
    ],
)
def test_fragments_of_one_entry_are_one_entry(fragments: Any, merged: Any) -> None:
    for batch in ([fragments], [[fragment] for fragment in fragments]):
        details = Details()
        for some in batch:
            details.add(some)
        assert details.merged() == merged


@pytest.mark.parametrize(
    ("fragments", "issue"),
    [
        ("x", "REASONING_UNMERGED"),
        (["x"], "REASONING_UNMERGED"),
        ([{"text": "x"}], "REASONING_UNMERGED"),
        ([text("a", index=0, format="f"), text("b", index=0, format="g")], "REASONING_UNMERGED"),
        ([SIGNED, {**SIGNED, "signature": "b3RoZXI="}], "SIGNATURE_LOST"),
    ],
)
def test_what_cannot_be_merged_is_refused(fragments: Any, issue: str) -> None:
    with pytest.raises(TurnFault) as caught:
        Details().add(fragments)
    assert caught.value.issue == issue


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4), st.data())
def test_any_cut_of_an_entry_gives_the_entry(texts: list[str], draw: st.DataObject) -> None:
    details = Details()
    for index, whole in enumerate(texts):
        cut = draw.draw(st.integers(0, len(whole)))
        for piece in (whole[:cut], whole[cut:]):
            details.add([text(piece, index=index)])
        details.add([{**SIGNED, "index": index, "signature": f"s{index}"}])
    assert details.merged() == [text(t, index=n, signature=f"s{n}") for n, t in enumerate(texts)]
