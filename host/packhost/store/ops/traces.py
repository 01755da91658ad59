"""Where a run holds texts that are to go: request, state, result, messages, calls, approvals, events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.errors import Conflict, InvalidInput
from packhost.journal import Record, canonical
from packhost.store.base import Reading, Tx
from packhost.store.ops import events

SHORTEST: Final = 6
"""Characters of a text that is looked for: a shorter one stands nearly everywhere."""
_MARK: Final = "[REDACTED]"
_PARTS: Final = ("spec_json", "state_json", "result_json")
_BELOW: Final = (
    "WITH RECURSIVE below(id) AS (SELECT id FROM executions WHERE id=?"
    " UNION SELECT x.id FROM executions x JOIN below b ON x.parent=b.id)"
    " SELECT id, session_id, status, spec_json, state_json, result_json FROM executions"
    " WHERE id IN (SELECT id FROM below) ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class Payloads:
    """The events that hold one payload between them: those of a call and of the approval that it used."""

    events: tuple[Record, ...]
    calls: tuple[str, ...]
    approvals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """What holds one of the texts: whole events, calls and approvals go, and what else is said is cut out.

    `parts` are a run's columns as they will be, by run; `messages` are by session and number.
    """

    runs: tuple[str, ...]
    events: tuple[int, ...]
    calls: tuple[str, ...]
    approvals: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...]
    messages: tuple[tuple[str, int, str], ...]
    questions: tuple[str, ...] = ()
    """What people were asked for the runs' tools, and answered."""

    @property
    def on_record(self) -> dict[str, Any]:
        """What the record says of it."""
        return {
            "runs": list(self.runs),
            "parts": [f"{run}:{column.removesuffix('_json')}" for run, column, _ in self.parts],
            "messages": [f"{session}:{seq}" for session, seq, _ in self.messages],
            "questions": list(self.questions),
        }


def traces_of(tx: Reading, found: Payloads, texts: Sequence[str] = ()) -> Traces:
    """Look through the run of the events, the runs that it started and their sessions.

    Looked for are the texts among the arguments in `found`, from six characters on, and `texts`.
    Raises `InvalidInput` when the events belong to no run or there is no text to look for, `Conflict` while
    one of the runs is running, since its host would write what it holds again.
    """
    run = next((one.execution_id for one in found.events if one.execution_id), None)
    if run is None:
        raise InvalidInput("the event belongs to no run", hint="leave `--run` out")
    short = [text for text in texts if len(text) < SHORTEST]
    if short:
        raise InvalidInput(f"a text to look for has at least {SHORTEST} characters", hint="give more of it")
    forms = _forms({*_texts_in(found), *texts})
    if not forms:
        raise InvalidInput(
            f"the event holds no text of {SHORTEST} characters to look for", hint="name it by `--texts`"
        )
    rows = tx.execute(_BELOW, (run,)).fetchall()
    for id, _, status, *_ in rows:
        if status == "running":
            raise Conflict(f"run `{id}` is running", hint="pause it, or wait until it has ended")
    runs = tuple(row[0] for row in rows)
    parts = [
        (row[0], column, clean)
        for row in rows
        for column, text in zip(_PARTS, row[3:], strict=True)
        if (clean := cleaned(text, forms)) is not None
    ]
    return Traces(
        runs,
        tuple(_events_holding(tx, runs, forms)),
        tuple(_calls_holding(tx, runs, forms)),
        tuple(_approvals_holding(tx, runs, forms)),
        tuple(parts),
        tuple(_messages_holding(tx, {(row[0], row[1]) for row in rows}, forms)),
        tuple(_questions_holding(tx, runs, forms)),
    )


def _texts_in(found: Payloads) -> set[str]:
    texts: set[str] = set()
    for record in found.events:
        texts.update(_leaves(json.loads(record.data or "{}").get("arguments")))
    return {text for text in texts if len(text) >= SHORTEST}


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)


def _forms(texts: set[str]) -> tuple[str, ...]:
    """Each text as it is and as it stands in JSON within a text, the longest first."""
    forms: set[str] = set()
    for text in texts:
        for ascii in (True, False):
            once = json.dumps(text, ensure_ascii=ascii)[1:-1]
            forms |= {text, once, json.dumps(once, ensure_ascii=ascii)[1:-1]}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def cleaned(text: str | None, forms: Sequence[str]) -> str | None:
    """JSON, or else plain text, with each form cut out; `None` when it holds none."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        clean = _cut(text, forms)
        return clean if clean != text else None
    clean_value = _without(value, forms)
    return canonical(clean_value) if clean_value != value else None


def _without(value: Any, forms: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _cut(value, forms)
    if isinstance(value, dict):
        return {_cut(key, forms): _without(inner, forms) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, forms) for inner in value]
    return value


def _cut(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        if form in text:
            text = text.replace(form, _MARK)
    return text


def _events_holding(tx: Reading, runs: Sequence[str], forms: Sequence[str]) -> Iterator[int]:
    for run in runs:
        after = 0
        while page := events.page(tx, after, run, 1_000):
            yield from (one.id for one in page if cleaned(one.data, forms) is not None)
            after = page[-1].id


def _calls_holding(tx: Reading, runs: Sequence[str], forms: Sequence[str]) -> Iterator[str]:
    for run in runs:
        rows = tx.execute("SELECT id, args_json, result_json FROM calls WHERE execution_id=?", (run,))
        for id, arguments, result in rows.fetchall():
            if cleaned(arguments, forms) is not None or cleaned(result, forms) is not None:
                yield id


def _approvals_holding(tx: Reading, runs: Sequence[str], forms: Sequence[str]) -> Iterator[str]:
    for run in runs:
        rows = tx.execute(
            "SELECT id, args_json, told_json, prompt FROM approvals WHERE (run_id=? OR execution_id=?)"
            " AND status<>'pending'",
            (run, run),
        )
        for id, *texts in rows.fetchall():
            if any(cleaned(text, forms) is not None for text in texts):
                yield id


def _questions_holding(tx: Reading, runs: Sequence[str], forms: Sequence[str]) -> Iterator[str]:
    for run in runs:
        rows = tx.execute(
            "SELECT id, prompt, message, told_json, content_json FROM questions WHERE run_id=?"
            " AND status<>'pending'",
            (run,),
        )
        for id, *texts in rows.fetchall():
            if any(cleaned(text, forms) is not None for text in texts):
                yield id


def _messages_holding(
    tx: Reading, of: set[tuple[str, str]], forms: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    """In the runs' sessions, whichever run a message came from, and in those of their branches."""
    sessions = {session for _, session in of}
    for run, _ in of:
        rows = tx.execute("SELECT id FROM sessions WHERE id>=? AND id<?", (f"{run}.", f"{run}/"))
        sessions.update(row[0] for row in rows.fetchall())
    for session in sorted(sessions):
        rows = tx.execute(
            "SELECT seq, message_json FROM session_messages WHERE session_id=? ORDER BY seq", (session,)
        )
        for seq, message in rows.fetchall():
            if (clean := cleaned(message, forms)) is not None:
                yield session, seq, clean


def rewrite(tx: Tx, traces: Traces) -> None:
    """Write what is kept of the runs without the texts."""
    for id in traces.questions:
        tx.execute(
            "UPDATE questions SET prompt=?, message=?, told_json='{}', content_json=NULL WHERE id=?",
            (_MARK, _MARK, id),
        )
    for run, column, text in traces.parts:
        tx.execute(f"UPDATE executions SET {column}=? WHERE id=?", (text, run))  # noqa: S608 - one of _PARTS
    for session, seq, text in traces.messages:
        tx.execute(
            "UPDATE session_messages SET message_json=? WHERE session_id=? AND seq=?", (text, session, seq)
        )
