"""A run's events over HTTP: replayed, followed, resumed; none skipped and none twice."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from packhost.http import events
from packhost.http.limits import Allowance
from packhost.store.ops import tokens

pytestmark = pytest.mark.anyio
PATIENCE = 30
PAGES = 34
"""So many pages have 100 events of 200,000 characters."""


async def read_all(client: Any, path: str, read_frames: Any, **headers: str) -> list[Any]:
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        return [frame async for frame in read_frames(response)]


async def test_a_run_that_ended_is_replayed_whole_and_the_stream_ends(records, read_frames) -> None:
    run = await records.run()
    numbers = [await records.emit(run, n=n) for n in range(3)]
    await records.emit(await records.run("other"), n=9)
    await records.end(run)
    async with records.serve() as served, served.client() as client:
        with anyio.fail_after(PATIENCE):
            first, *found = await read_all(client, f"/v1/runs/{run}/events", read_frames)
    assert first.data is None
    assert [frame.event for frame in found] == [
        "run.queued", "run.running", *["test.event"] * 3, "run.completed"
    ]  # fmt: skip
    assert [frame.data["seq"] for frame in found[2:5]] == numbers
    assert [frame.data["data"] for frame in found[2:5]] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert all(frame.id == frame.data["cursor"] and frame.data["run_id"] == run for frame in found)


async def test_a_stream_says_when_to_come_back(records, read_frames) -> None:
    run = await records.run()
    await records.end(run)
    async with records.serve() as served, served.client() as client:
        text = (await client.get(f"/v1/runs/{run}/events")).text
    assert text.startswith("retry: 1000\n\n")


@pytest.mark.parametrize("way", ["after", "header", "both"])
async def test_a_cursor_goes_on_strictly_after_it_and_the_header_wins(records, read_frames, way) -> None:
    run = await records.run()
    for n in range(5):
        await records.emit(run, n=n)
    await records.end(run)
    async with records.serve() as served, served.client() as client:
        every = (await read_all(client, f"/v1/runs/{run}/events", read_frames))[1:]
        path, headers = f"/v1/runs/{run}/events", {}
        if way in ("after", "both"):
            path += f"?after={every[0 if way == 'both' else 3].id}"
        if way in ("header", "both"):
            headers = {"Last-Event-ID": every[3].id}
        rest = (await read_all(client, path, read_frames, **headers))[1:]
    assert rest == every[4:]


async def test_what_comes_while_a_stream_is_open_is_told_at_once(records, read_frames) -> None:
    run = await records.run()
    async with (
        records.serve() as served,
        served.client() as client,
        client.stream("GET", f"/v1/runs/{run}/events") as response,
    ):
        reader = read_frames(response)
        with anyio.fail_after(PATIENCE):
            assert [(await anext(reader)).event for _ in range(3)] == [None, "run.queued", "run.running"]
            for n in range(3):
                await records.emit(run, n=n)
                assert (await anext(reader)).data["data"] == {"n": n}
            await records.end(run)
            assert [frame.event async for frame in reader] == ["run.completed"]


@pytest.mark.parametrize("seed", range(3))
async def test_no_event_is_skipped_or_repeated_under_concurrency(records, read_frames, seed) -> None:
    run, other = await records.run(), await records.run()
    chance = random.Random(seed)
    seen: list[list[int]] = [[], [], []]
    connections = [0, 0, 0]

    async def write(writer: int) -> None:
        for n in range(60):
            await records.emit(run if (n + writer) % 3 else other, w=writer, n=n)
            if chance.random() < 0.3:
                await anyio.lowlevel.checkpoint()

    async def tail(index: int, client: Any) -> None:
        cursor = ""
        while True:
            connections[index] += 1
            stay = chance.randrange(1, 40)
            headers = {"Last-Event-ID": cursor} if cursor else {}
            async with client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
                async for frame in read_frames(response):
                    if frame.id is None:
                        continue
                    cursor = frame.id
                    seen[index].append(frame.data["seq"])
                    if frame.event == "run.completed":
                        return
                    stay -= 1
                    if stay == 0:
                        break

    async with records.serve() as served, served.client() as client:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tails:
                for index in range(3):
                    tails.start_soon(tail, index, client)
                async with anyio.create_task_group() as writers:
                    for writer in range(6):
                        writers.start_soon(write, writer)
                await records.end(run)
    written = [
        row[0]
        for row in records.store.read(
            lambda tx: tx.execute("SELECT id FROM events WHERE execution_id=? ORDER BY id", (run,)).fetchall()
        )
    ]
    assert len(written) > 240
    assert seen == [written] * 3
    assert min(connections) > 3


async def test_json_pages_go_on_until_nothing_is_left(records) -> None:
    run = await records.run()
    for n in range(5):
        await records.emit(run, n=n)
    found, cursor = [], ""
    async with records.serve() as served, served.client() as client:
        while True:
            path = f"/v1/runs/{run}/events?limit=3" + (f"&after={cursor}" if cursor else "")
            page = (await client.get(path, headers={"Accept": "application/json"})).json()
            if not page["events"]:
                break
            found += page["events"]
            cursor = page["next"]
        assert page["next"] == cursor
        assert page["status"] == "running"
    assert [one["data"] for one in found[2:]] == [{"n": n} for n in range(5)]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("kind", ["garbage", "foreign", "altered", "long", "accents"])
async def test_a_cursor_that_was_not_given_out_for_this_run_is_refused(records, accept, kind) -> None:
    run, other = await records.run(), await records.run()
    async with records.serve() as served, served.client() as client:
        headers = {"Accept": "application/json"}
        mine = (await client.get(f"/v1/runs/{run}/events", headers=headers)).json()["next"]
        theirs = (await client.get(f"/v1/runs/{other}/events", headers=headers)).json()["next"]
        altered = ("B" if mine[5] != "B" else "C").join((mine[:5], mine[6:]))
        cursor = {"garbage": "1", "foreign": theirs, "altered": altered, "long": "A" * 600, "accents": "é"}
        answer = await client.get(
            f"/v1/runs/{run}/events", params={"after": cursor[kind]}, headers={"Accept": accept}
        )
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "INVALID_INPUT"
    assert "cursor" in answer.json()["detail"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_run_that_is_unknown_or_anothers_is_not_found(records, accept) -> None:
    theirs = await records.run("somebody")
    headers = {"Accept": accept}
    async with records.serve() as served, served.client() as client:
        for id in (theirs, "run_none", "run%0Anone", "%0A"):
            answer = await client.get(f"/v1/runs/{id}/events", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    async with records.serve() as served, served.client("auditor", "eve") as auditor:
        answer = await auditor.get(f"/v1/runs/{theirs}/events", headers={"Accept": "application/json"})
        assert answer.status_code == 200


@pytest.mark.parametrize("lease", ["9", "1801", "no", "nan", "-1"])
async def test_a_lease_beyond_its_limits_is_refused(records, lease) -> None:
    run = await records.run()
    async with records.serve() as served, served.client() as client:
        answer = await client.get(f"/v1/runs/{run}/events?lease={lease}")
    assert (answer.status_code, answer.json()["path"]) == (400, "/lease")


async def test_a_stream_detaches_when_its_lease_is_over_and_the_run_goes_on(
    records, read_frames, monkeypatch
) -> None:
    monkeypatch.setattr(events, "ALIVE_EVERY", 0.1)
    run = await records.run()
    async with records.serve() as served, served.client() as client:
        short = events.EventStream.__init__
        monkeypatch.setattr(
            events.EventStream,
            "__init__",
            lambda self, call, run_id, after, lease=0, headers=(): short(self, call, run_id, after, 0.35),
        )
        with anyio.fail_after(PATIENCE):
            found = await read_all(client, f"/v1/runs/{run}/events", read_frames)
        last, alive = found[-1], [frame for frame in found if frame.comment is not None]
        assert (last.event, last.id) == ("await", None)
        assert last.data["awaitReason"] == "detached"
        assert last.data["executionId"] == run
        assert 1 <= len(alive) <= 3
        await records.emit(run, n=1)
        await records.end(run)
        rest = await read_all(client, f"/v1/runs/{run}/events?after={last.data['after']}", read_frames)
        assert [frame.event for frame in rest[1:]] == ["test.event", "run.completed"]


async def test_a_stream_ends_once_its_token_is_revoked_and_tells_nothing_more(records, read_frames) -> None:
    run = await records.run()
    async with records.serve() as served, served.client() as client:
        found = []
        with anyio.fail_after(PATIENCE):
            async with client.stream("GET", f"/v1/runs/{run}/events") as response:
                async for frame in read_frames(response):
                    found.append(frame.event)
                    if frame.event == "run.running":
                        (token,) = records.store.read(tokens.listing)
                        await records.store.write(tokens.revoke, token.id, "root")
                        await records.emit(run, n=1)
        assert found[1:] == ["run.queued", "run.running"]
        assert (await client.get(f"/v1/runs/{run}")).status_code == 401


async def test_a_secret_that_is_known_by_now_is_shown_in_no_event(records, read_frames) -> None:
    run = await records.run()
    await records.emit(run, said='the key is "hunter2222"')
    await records.end(run)
    records.secrets.append("hunter2222")
    async with records.serve() as served, served.client() as client:
        found = await read_all(client, f"/v1/runs/{run}/events", read_frames)
    assert found[3].data["data"] == {"said": 'the key is "[REDACTED]"'}


async def test_a_payload_that_was_taken_out_of_the_record_is_null(records, read_frames) -> None:
    run = await records.run()
    number = await records.emit(run, said="gone")
    await records.end(run)
    await records.store.write(
        lambda tx: tx.execute("UPDATE events SET data_json=NULL WHERE id=?", (number,)) and None
    )
    async with records.serve() as served, served.client() as client:
        found = await read_all(client, f"/v1/runs/{run}/events", read_frames)
    assert found[3].data["data"] is None


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_cursor_before_what_was_pruned_is_gone(records, accept) -> None:
    run = await records.run()
    headers = {"Accept": "application/json"}
    async with records.serve() as served, served.client() as client:
        early = (await client.get(f"/v1/runs/{run}/events?limit=1", headers=headers)).json()["next"]
        last = (await client.get(f"/v1/runs/{run}/events", headers=headers)).json()["next"]
        await records.store.write(
            lambda tx: tx.execute("UPDATE executions SET events_pruned=2 WHERE id=?", (run,)) and None
        )
        await records.end(run)
        gone = await client.get(f"/v1/runs/{run}/events?after={early}", headers={"Accept": accept})
        assert (gone.status_code, gone.json()["code"]) == (410, "CURSOR_PRUNED")
        kept = await client.get(f"/v1/runs/{run}/events?after={last}", headers={"Accept": accept})
        assert kept.status_code == 200


async def test_a_reader_that_does_not_read_holds_one_page_and_stops_nobody(
    records, read_frames, monkeypatch
) -> None:
    run = await records.run()
    for _ in range(100):
        await records.emit(run, text="x" * 200_000)
    async with records.serve() as served, served.client() as slow, served.client() as quick:
        pages: list[int] = []
        frames = events._frames
        monkeypatch.setattr(events, "_frames", lambda *given: pages.append(1) or frames(*given))
        async with slow.stream("GET", f"/v1/runs/{run}/events") as response:
            with anyio.fail_after(PATIENCE):
                await records.end(run)
                found = await read_all(quick, f"/v1/runs/{run}/events", read_frames)
            assert len(found) == 104
            assert response.status_code == 200
            assert len(pages) < 2 * PAGES, "the slow one was read for as the quick one was"


async def test_streams_are_limited_for_each_principal(records) -> None:
    run = await records.run()
    async with records.serve(Allowance(streams=1)) as served, served.client() as client:
        async with client.stream("GET", f"/v1/runs/{run}/events") as response:
            assert response.status_code == 200
            refused = await client.get(f"/v1/runs/{run}/events")
            assert (refused.status_code, refused.json()["code"]) == (429, "LIMIT_EXCEEDED")
            assert int(refused.headers["retry-after"]) >= 1
            async with served.client(principal="other") as other:
                assert (await other.get(f"/v1/runs/{run}/events")).status_code == 404
        with anyio.fail_after(PATIENCE):
            while True:
                async with client.stream("GET", f"/v1/runs/{run}/events") as response:
                    if response.status_code == 200:
                        break
                await anyio.sleep(0.02)
