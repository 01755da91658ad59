"""Answers and resumptions in any order, with deaths between: each answer is kept, and one resumption wins."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from packhost.errors import PackhostError
from packhost.executions import answers
from packhost.executions.answers import Resumption, checkpoint_of
from packhost.kinds.awaits import await_calls, awaited, take_answers
from packhost.store.base import Tx
from packhost.store.ops import executions
from packhost.store.rows import NewExecution
from packhost.store.sqlite import SqliteStore

RUN = "run_1"
NEVER = "never"


def answer(text: str) -> dict[str, Any]:
    return {"text": text, "is_error": False}


class Machine(RuleBasedStateMachine):
    """The model is `given`, the answers that were acknowledged, and `group`, the ids that are waited for."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.store = SqliteStore(Path(self.folder.name) / "store.db", "w")
        self.status, self.epoch = "running", 1
        self.group: list[str] = []
        self.given: dict[str, str] = {}
        self.past: list[str] = []
        self.stale: list[str] = []
        self.asked = 0
        new = NewExecution(RUN, "lab:turn", "s-1", "ann", "editor")

        def start(tx: Tx) -> None:
            executions.create(tx, new)
            executions.claim(tx, RUN, "host", 60.0, 0)
            executions.save_state(tx, RUN, "host", 1, "{}")

        self.write(start)

    def write(self, op: Any, *args: Any) -> Any:
        return self.runner.run(self.store.write(op, *args))

    @property
    def row(self) -> Any:
        return self.store.read(executions.get, RUN)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.row.state_json)
        return found

    @property
    def left(self) -> list[str]:
        return [one for one in self.group if one not in self.given]

    @precondition(lambda self: self.status == "running" and not self.group)
    @rule(calls=st.integers(1, 3))
    def ask(self, calls: int) -> None:
        self.group = [f"c{self.asked + number}" for number in range(calls)]
        self.asked += calls
        state = self.state
        await_calls(state, [{"tool_call_id": one, "tool_name": f"t-{one}"} for one in self.group])
        self.write(answers.pause, RUN, "host", self.epoch, json.dumps(state), None)
        self.status = "paused"
        assert self.row.waiting_on == f"client:{self.group[0]}"

    @precondition(lambda self: self.status == "running" and self.group and self.left)
    @rule()
    def pause_again(self) -> None:
        self.write(answers.pause, RUN, "host", self.epoch, json.dumps(self.state), None)
        self.status = "paused"

    @precondition(lambda self: self.status == "running" and self.group and not self.left)
    @rule()
    def get_on(self) -> None:
        state = self.state
        taken = {one: kept["text"] for one, kept in take_answers(state).items()}
        assert taken == {one: self.given[one] for one in self.group}
        self.stale.append(checkpoint_of(self.row.state_json))
        self.write(executions.save_state, RUN, "host", self.epoch, json.dumps(state))
        self.past += self.group
        self.group = []

    @precondition(lambda self: self.status == "running")
    @rule()
    def die(self) -> None:
        self.write(executions.interrupt, self.row, "another")
        self.status, self.epoch = "interrupted", self.epoch + 1

    @precondition(lambda self: self.status == "running" and not self.group)
    @rule()
    def end(self) -> None:
        self.write(executions.finish, RUN, "host", self.epoch, "completed", "completed")
        self.status = "ended"

    @rule(
        places=st.lists(st.integers(0, 5), max_size=3, unique=True),
        text=st.sampled_from(["one", "two"]),
        named=st.sampled_from(["no", "this", "stale"]),
        twice=st.booleans(),
    )
    def resume(self, places: list[int], text: str, named: str, twice: bool) -> None:
        known = [*self.group, NEVER, *self.past[-2:]]
        sent = {known[place]: text for place in places if place < len(known)}
        stale = named == "stale" and bool(self.stale)
        token = None if named == "no" else self.stale[-1] if stale else checkpoint_of(self.row.state_json)
        wanted = Resumption(
            "client", self.epoch, False, token, {one: answer(said) for one, said in sent.items()}
        )
        expected = self.expected(sent, bound=wanted.bound, stale=stale)
        self.compare(wanted, expected, sent)
        if twice and expected == "claimed":  # whoever was slower
            self.compare(wanted, self.expected(sent, bound=wanted.bound, stale=stale), sent)

    def expected(self, sent: dict[str, str], *, bound: bool, stale: bool) -> str:
        if bound:
            if self.status == "ended":
                return "NOT_FOUND"
            if stale:
                return "RESUME_STATE_CHANGED"
            if self.status == "running":
                return "CONTINUATION_IN_PROGRESS"
            if any(one in self.past for one in sent):
                return "RESUME_STATE_CHANGED"
            if NEVER in sent:
                return "INVALID_INPUT"
            if any(self.given.get(one, said) != said for one, said in sent.items()):
                return "RESUME_STATE_CHANGED"
        elif self.status == "ended":
            return "RESUME_STATE_CHANGED"
        elif self.status == "running":
            return "CONTINUATION_IN_PROGRESS"
        still = [one for one in self.left if one not in sent]
        return "waits" if still and self.status == "paused" else "claimed"

    def compare(self, wanted: Resumption, expected: str, sent: dict[str, str]) -> None:
        before = self.row
        came = self.attempt(wanted)
        assert (came if isinstance(came, str) else "claimed") == expected
        if isinstance(came, str) and came != "waits":
            assert self.row == before
            return
        self.given.update(sent)
        if isinstance(came, int):
            assert came == self.epoch + 1
            self.status, self.epoch = "running", came

    def attempt(self, wanted: Resumption) -> int | str:
        """The epoch of a run that was taken, `waits`, or the code of the refusal."""
        try:
            epoch: int | None = self.write(answers.resume, RUN, "host", 60.0, wanted)
        except PackhostError as error:
            return error.code
        return "waits" if epoch is None else epoch

    @invariant()
    def what_was_acknowledged_is_kept(self) -> None:
        if not hasattr(self, "runner"):
            return
        group = awaited(self.state)
        kept = {} if group is None else {one: said["text"] for one, said in group.raw["answers"].items()}
        assert kept == {one: self.given[one] for one in self.group if one in self.given}
        row = self.row
        assert (row.status == "completed") if self.status == "ended" else (row.status == self.status)
        assert row.epoch == self.epoch

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.store.close())
            self.runner.close()
            self.folder.cleanup()


@pytest.mark.slow
def test_whatever_is_sent_and_whoever_dies_no_answer_is_lost_changed_or_made_up() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
