"""The resumption of a run by whom it waits for: which pause is meant, and the answers that are kept.

One transaction takes the answers in and, once nothing more is waited for, claims the run. So one of
several resumptions wins, and an answer that was acknowledged outlives whatever happens next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhost.errors import Conflict, InvalidInput, NotFound
from packhost.executions.ops import check_person
from packhost.gate.display import as_text
from packhost.journal import digest
from packhost.kinds.awaits import Group, groups_of, past_of, same_output
from packhost.kinds.context import Amend
from packhost.store.base import Tx
from packhost.store.ops import executions
from packhost.store.rows import ExecutionRow

CLIENT = "client:"
"""How `waiting_on` begins when the run's caller is to make a call."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """How somebody wants a run to go on; `answers` by the calls' ids, each `{text, is_error}`.

    `epoch` is that in which the run was last seen. Whoever `yields` leaves another person's pause theirs.
    """

    by: str
    epoch: int
    background: bool = False
    checkpoint: str | None = None
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    amend: Amend | None = None
    yields: bool = False

    @property
    def bound(self) -> bool:
        """Whether it is meant for one pause alone."""
        return self.checkpoint is not None or bool(self.answers) or self.amend is not None


def pause(tx: Tx, id: str, owner: str, epoch: int, state_json: str, waiting_on: str | None) -> None:
    """Let go of a run that paused, and say which calls its caller is to make. Raises `Conflict`."""
    groups = list(groups_of(json.loads(state_json))) if '"awaits"' in state_json else []
    if not executions.get(tx, id).abort_requested:
        _tell(tx, id, groups, owner)
    executions.mark_paused(
        tx, id, owner, epoch, state_json=state_json, waiting_on=waiting_on or _first_of(groups)
    )


def resume(tx: Tx, id: str, owner: str, ttl: float, wanted: Resumption) -> int | None:
    """Keep the answers and claim the run; its new epoch, or `None` while it still waits for answers.

    Raises what `RunService.resume` raises; then nothing was changed.
    """
    row = executions.get(tx, id)
    check_person(row, wanted.by, wanted.yields)
    state: dict[str, Any] = json.loads(row.state_json) if row.state_json else {}
    _check_pause(tx, row, state, wanted)
    if wanted.amend is not None and (more := wanted.amend(json.loads(row.spec_json)["spec"], state)):
        state.update(more)
        _write(tx, row, state)
    groups = list(groups_of(state))
    if wanted.answers:
        _keep(tx, row, state, groups, wanted)
    left = [call for group in groups for call in group.outstanding]
    ready = len(groups) > len([group for group in groups if group.outstanding])
    if left and not ready and row.status == "paused" and (row.waiting_on or "").startswith(CLIENT):
        if wanted.answers:
            _tell(tx, id, groups, wanted.by)
        _release(tx, row, _first_of(groups))
        return None
    return executions.claim(tx, id, owner, ttl, wanted.epoch, background=wanted.background)


def checkpoint_of(state_json: str | None) -> str:
    """The name of what a run would go on from: that of the group it waits for, else of its state."""
    groups = list(groups_of(json.loads(state_json))) if state_json and '"awaits"' in state_json else []
    if len(groups) == 1:
        return str(groups[0].raw["checkpoint"])
    if groups:
        return f"pause_{digest(json.dumps([group.raw['checkpoint'] for group in groups]))[:26]}"
    return f"state_{digest(state_json or '')[:26]}"


def outstanding_in(state_json: str | None) -> tuple[Mapping[str, Any], ...]:
    """The calls that a run's caller is to make and has not answered."""
    if not state_json or '"awaits"' not in state_json:
        return ()
    return tuple(call for group in groups_of(json.loads(state_json)) for call in group.outstanding)


def _first_of(groups: Sequence[Group]) -> str | None:
    """`waiting_on` of a run with these groups."""
    left = [call["tool_call_id"] for group in groups for call in group.outstanding]
    return f"{CLIENT}{left[0]}" if left else None


def _tell(tx: Tx, id: str, groups: Sequence[Group], by: str) -> None:
    """Put on record, and so before whoever follows the run, which calls its caller is to make."""
    for group in groups:
        for call in group.outstanding:
            data = {**call, "checkpoint": group.raw["checkpoint"]}
            if group.branch:
                data["branch"] = group.branch
            tx.emit("call.awaited", data, execution_id=id, actor=by)


def _check_pause(tx: Tx, row: ExecutionRow, state: Mapping[str, Any], wanted: Resumption) -> None:
    """Hold a resumption to the pause that it means."""
    if not wanted.bound:
        return
    if row.ended:
        raise NotFound(
            f"run `{row.id}` is {row.status}: nothing of it can be resumed",
            hint="read its result with `resume_workflow` without outputs, or start a new run",
            status=row.status,
        )
    now = checkpoint_of(row.state_json)
    if wanted.checkpoint not in (None, now):
        raise _changed(row, f"its pause `{wanted.checkpoint}` is over", now)
    if row.status in ("running", "queued"):
        raise executions.conflict(tx, row.id)
    if wanted.answers and (known := past_of(state).intersection(wanted.answers)):
        named = ", ".join(f"`{one}`" for one in sorted(known))
        raise _changed(row, f"its calls {named} were answered before", now)


def _changed(row: ExecutionRow, what: str, now: str) -> Conflict:
    return Conflict(
        f"run `{row.id}` has moved on: {what}",
        code="RESUME_STATE_CHANGED",
        hint="send nothing of that again; look at what the run waits for now and answer that alone",
        status=row.status,
        epoch=row.epoch,
        checkpoint=now,
    )


def _keep(
    tx: Tx, row: ExecutionRow, state: dict[str, Any], groups: Sequence[Group], wanted: Resumption
) -> None:
    """Add the answers to the state, all or none."""
    placed = [(identity, *_place(identity, groups), answer) for identity, answer in wanted.answers.items()]
    if unknown := [identity for identity, group, _, _ in placed if group is None]:
        named = ", ".join(f"`{str(one)[:100]}`" for one in unknown)
        waiting = [f"`{call['tool_call_id']}`" for group in groups for call in group.outstanding]
        raise InvalidInput(
            f"run `{row.id}` waits for no call {named}; none of these outputs was taken",
            path=f"/tool_outputs/{unknown[0]}",
            hint=f"it waits for {', '.join(waiting)}" if waiting else "it waits for no output at all",
            unknown=[str(one) for one in unknown],
        )
    taken: dict[str, Mapping[str, Any]] = {}
    for _, group, inside, answer in placed:
        assert group is not None
        before = group.raw["answers"].get(inside)
        if before is not None and not same_output(before, answer):
            named = group.outside(inside)
            raise _changed(
                row, f"call `{named}` has another output, which stands", checkpoint_of(row.state_json)
            )
        if before is None:
            group.raw["answers"][inside] = dict(answer)
            taken[group.outside(inside)] = {"answer": answer, "group": group}
    if not taken:
        return
    _write(tx, row, state)
    for identity, one in taken.items():
        data: dict[str, Any] = {
            "tool_call_id": identity,
            "is_error": one["answer"]["is_error"],
            "result_sha": digest(one["answer"]["text"]),
        }
        if one["group"].branch:
            data["branch"] = one["group"].branch
        tx.emit("call.answered", data, execution_id=row.id, actor=wanted.by)


def _write(tx: Tx, row: ExecutionRow, state: Mapping[str, Any]) -> None:
    text = as_text(state)
    tx.execute("UPDATE executions SET state_json=?, updated_at=? WHERE id=?", (text, tx.now(), row.id))


def _place(identity: str, groups: Sequence[Group]) -> tuple[Group | None, str]:
    """The group and the call that an output is for: by its id, or by the name of the only such call."""
    for group in groups:
        for call in group.calls:
            if call["tool_call_id"] == identity:
                return group, group.inside(identity)
    named = [(group, call) for group in groups for call in group.calls if call["tool_name"] == identity]
    if len(named) != 1:
        return None, identity
    group, call = named[0]
    return group, group.inside(call["tool_call_id"])


def _release(tx: Tx, row: ExecutionRow, waiting_on: str | None) -> None:
    """Let only the caller be waited for, and no longer whoever paused the run."""
    if waiting_on != row.waiting_on or row.paused_by is not None:
        tx.execute(
            "UPDATE executions SET waiting_on=?, paused_by=NULL, updated_at=? WHERE id=?",
            (waiting_on, tx.now(), row.id),
        )
