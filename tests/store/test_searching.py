"""A search of the record: what it finds, in which order, and that it looks at so many events at a time."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.store.base import Store
from packhost.store.ops import events
from packhost.store.ops.events import Wanted

pytestmark = pytest.mark.anyio

FAR = 2**53


async def emit(store: Store, kind: str, actor: str = "ann", run: str | None = None, **data: Any) -> int:
    return await store.write(lambda tx: tx.emit(kind, data, execution_id=run, actor=actor))


def found(store: Store, before: int = FAR, limit: int = 50, most: int = 1_000, **wanted: Any) -> list[int]:
    return [one.id for one in store.read(events.search, Wanted(**wanted), before, limit, most).found]


async def test_text_is_found_in_what_an_event_holds_without_regard_to_case(store: Store) -> None:
    first = await emit(store, "test.one", said='Grüße, "you"\\')
    second = await emit(store, "test.two", said="nothing", actor="Bob")
    assert found(store, text='GRüße, "YOU"\\') == [first]
    assert found(store, text="bob") == [second]
    assert found(store, text="test.") == [second, first]


@pytest.mark.parametrize("sign", ["%", "_", "!", "100%", "a_b"])
async def test_signs_of_patterns_are_looked_for_as_they_stand(store: Store, sign: str) -> None:
    await emit(store, "test.one", said="1000 axb")
    assert found(store, text=sign) == []
    meant = await emit(store, "test.two", said=f"so {sign} it is")
    assert found(store, text=sign) == [meant]


async def test_a_type_is_whole_unless_it_ends_in_a_star(store: Store) -> None:
    one, other = await emit(store, "run.queued"), await emit(store, "run.queued_up")
    assert found(store, type="run.queued") == [one]
    assert found(store, type="run.*") == [other, one]


async def test_a_run_and_a_span_of_time_narrow_it(store: Store) -> None:
    one = await emit(store, "test.one", run=None)
    when = store.read(events.by_id, one)
    assert when is not None
    assert found(store, until=when.ts) == [one]
    assert found(store, since=when.ts + 60) == []
    assert found(store, run="run_1") == []


async def test_pages_follow_each_other_without_a_gap(store: Store) -> None:
    made = [await emit(store, "test.one", number=number) for number in range(7)]
    before, seen, pages = FAR, list[int](), 0
    while True:
        page = store.read(events.search, Wanted(type="test.one"), before, 3, 1_000)
        seen += [one.id for one in page.found]
        pages += 1
        if page.next is None:
            break
        before = page.next
    assert seen == made[::-1]
    assert pages == 3


async def test_a_request_looks_at_so_many_events_and_says_where_to_go_on(store: Store) -> None:
    needle = await emit(store, "test.needle")
    for number in range(6):
        await emit(store, "test.hay", number=number)
    page = store.read(events.search, Wanted(type="test.needle"), FAR, 10, 4)
    assert page.found == ()
    assert page.next is not None
    assert [
        one.id for one in store.read(events.search, Wanted(type="test.needle"), page.next, 10, 4).found
    ] == [needle]


async def test_an_empty_record_has_no_further_page(store: Store) -> None:
    assert store.read(events.search, Wanted(), FAR, 10, 10) == events.Page((), None)
