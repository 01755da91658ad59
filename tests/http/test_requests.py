"""What a request may be: methods, bodies, queries, pages, and errors as problem details."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import CODES as ERROR_CODES
from packhost.errors import PackhostError
from packhost.http.cursors import Cursors
from packhost.http.problems import CODES, Problem, of_error

anyio_test = pytest.mark.anyio
KEY = b"k" * 32


JSON = "application/json"
BODIES = (
    ("text/plain", b"{}x", 415, "UNSUPPORTED_MEDIA_TYPE"),
    (JSON, b"{", 400, "INVALID_INPUT"),
    (JSON, b"\xff\xfe", 400, "INVALID_INPUT"),
    (JSON, b"[]", 400, "INVALID_INPUT"),
    (JSON, b'{"tool": NaN}', 400, "INVALID_INPUT"),
    (JSON, b'{"tool": "a", "more": 1}', 400, "INVALID_INPUT"),
    (JSON, b"{}", 400, "INVALID_INPUT"),
    (JSON, b"", 400, "INVALID_INPUT"),
    (JSON, b"[" * 100_000, 400, "INVALID_INPUT"),
    (JSON, b'{"a":' * 300 + b"1" + b"}" * 300, 400, "INVALID_INPUT"),
    (JSON, b"1" * 2_000_000, 413, "TOO_LARGE"),
)


@anyio_test
async def test_a_body_that_cannot_be_read_is_a_clear_problem(records) -> None:
    async with records.serve() as served, served.client() as client:
        for kind, body, status, code in BODIES:
            answer = await client.post("/v1/explain", content=body, headers={"Content-Type": kind})
            assert (answer.status_code, answer.json()["code"]) == (status, code), body[:40]
            assert answer.json()["hint"]


@anyio_test
async def test_a_body_in_pieces_is_cut_at_the_limit(records) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b"1" * 100_000

    async with records.serve() as served, served.client() as client:
        answer = await client.post(
            "/v1/explain", content=pieces(), headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 413


@anyio_test
async def test_a_body_where_none_is_taken_is_left_unread(records) -> None:
    async with records.serve() as served, served.client() as client:
        for _ in range(2):
            answer = await client.request("GET", "/v1/runs", content=b"1" * 3_000_000)
            assert answer.status_code == 200


@anyio_test
async def test_a_query_that_means_nothing_is_refused(records) -> None:
    queries = ("limit=0", "limit=501", "limit=x", "more=1", "limit=1&limit=2", "cursor=AAAA", "direct=maybe")
    async with records.serve() as served, served.client() as client:
        for query in queries:
            answer = await client.get(f"/v1/runs?{query}")
            assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT"), query


@anyio_test
async def test_a_method_that_is_not_there_names_those_that_are(records) -> None:
    async with records.serve() as served, served.client() as client:
        answer = await client.delete("/v1/runs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, GET")


@anyio_test
async def test_a_problem_has_every_member_of_problem_details(records) -> None:
    async with records.serve() as served, served.client() as client:
        problem = (await client.get("/v1/runs/run_none")).json()
    assert problem["type"] == "urn:packhost:problem:not-found"
    assert problem["title"] == "Not Found"
    assert problem["status"] == 404
    assert problem["instance"] == "/v1/runs/run_none"
    assert "run_none" in problem["detail"]


@anyio_test
async def test_what_breaks_inside_is_told_as_nothing_but_that(records, monkeypatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("the secret of the house")

    async with records.serve() as served, served.client() as client:
        monkeypatch.setattr("packhost.http.kit._query", broken)
        answer = await client.get("/v1/runs")
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert "secret" not in answer.text


@anyio_test
async def test_pages_of_runs_hold_each_run_once_and_only_ones_own(records) -> None:
    mine = [await records.run() for _ in range(5)]
    theirs = await records.run("somebody")
    async with records.serve() as served, served.client() as client:
        found, cursor = [], None
        while True:
            page = (
                await client.get("/v1/runs", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
            ).json()
            found += [one["id"] for one in page["runs"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert found == sorted(mine, reverse=True)
        async with served.client("auditor", "eve") as auditor:
            every = (await auditor.get("/v1/runs")).json()["runs"]
            assert {one["id"] for one in every} == {*mine, theirs}
            first = (await auditor.get("/v1/runs?limit=1")).json()["next"]
            assert (await client.get(f"/v1/runs?cursor={first}")).status_code == 400


def test_every_error_of_ours_has_a_status_of_its_own_kind() -> None:
    for code in sorted(ERROR_CODES):
        problem = of_error(PackhostError("it is so", code=code, hint="do that"))  # type: ignore[arg-type]
        assert 400 <= problem.status < 600
        assert problem.code in CODES


def test_an_unavailable_store_says_when_to_come_back() -> None:
    answer = Problem(503, "STORE_UNAVAILABLE", "it is gone").response("/v1/runs")
    assert answer.headers["retry-after"] == "1"


@given(st.text(max_size=80), st.text(alphabet=st.characters(codec="utf-8"), max_size=80))
def test_a_cursor_of_a_list_gives_back_its_id_and_is_good_for_no_other(about, id) -> None:
    cursors = Cursors(KEY)
    cursor = cursors.seal(about, id)
    assert cursors.read(about, cursor) == id
    for other, key in ((about + "x", KEY), (about, b"o" * 32)):
        with pytest.raises(Problem):
            Cursors(key).read(other, cursor)


@given(st.integers(0, 2**63), st.text(max_size=40))
def test_a_cursor_of_events_gives_back_its_number_and_is_good_for_no_other(number, run) -> None:
    cursor = Cursors(KEY).of_run(run).seal(number)
    assert Cursors(KEY).of_run(run).read(cursor) == number
    for other in (Cursors(KEY).of_run(run + "x"), Cursors(b"o" * 32).of_run(run)):
        with pytest.raises(Problem):
            other.read(cursor)


@given(st.text(min_size=1, max_size=60))
def test_no_text_that_somebody_makes_up_is_a_cursor(text) -> None:
    with pytest.raises(Problem):
        Cursors(KEY).of_run("run_1").read(text)
    with pytest.raises(Problem):
        Cursors(KEY).read("runs", text)
