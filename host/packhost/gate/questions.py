"""What a tool asks a person for before it is called: put, followed, checked and handed on.

One record for each call, whatever channel answers it. What the person gives is held to the form as it was
asked, and nothing is made of it that it is not. It is used once, in the transaction of the call's intent, so
that a call which waits for its approval afterwards asks nobody twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import anyio

from packhost.errors import Conflict, InvalidInput
from packhost.gate.approve import unattended
from packhost.gate.configuration import Terms
from packhost.gate.context import GateContext
from packhost.gate.display import (
    argument_lines,
    as_text,
    label,
    one_line,
    quoted,
    whole_characters,
)
from packhost.gate.evaluate import Evaluation
from packhost.gate.types import Asker, CallRequest, Deferred, Given, Prompt, Refusal
from packhost.manifest.elicit import Form
from packhost.manifest.schemas import input_fault
from packhost.names import new_id
from packhost.rules.approvals import binding
from packhost.store.base import Store, Tx
from packhost.store.ops import calls, questions
from packhost.store.ops.questions import NewQuestion, QuestionRow
from packhost.store.rows import NewCall
from packhost.workspace.redaction import redact_json_text

PREFIX: Final = "qn"
"""How identifiers of questions begin."""
REASON: Final = "tool_elicitation"
"""Why a run that waits for a person's input waits."""


class Questions:
    """Forms for people: put, answered, used."""

    def __init__(self, store: Store, key: bytes, terms: Callable[[], Terms]) -> None:
        self._store = store
        self._key = key
        self._terms = terms

    async def obtain(
        self, found: Evaluation, request: CallRequest, asker: Asker | None, parent: GateContext | None
    ) -> Given | Refusal | Deferred:
        """What a person gives for this very call, who may have given it before."""
        form, terms = found.entry.form, self._terms()
        assert form is not None
        if parent is not None or not request.top_level or request.caller.subagent is not None:
            return _not_here(found, "only a call of an agent that nobody else's run started may")
        if terms.unattended == "reject" and unattended(asker, request.caller):
            return _not_here(found, "this caller's channel can ask none")
        digest = self._binding(found, request)
        row = self._store.read(questions.find_live, digest, self._store.now())
        if row is None:
            new = self._new(found, request, form, digest, terms)
            row = await self._store.write(questions.ask, new)
        if row.status != "pending":
            return self._settled(row)
        if asker is None and request.caller.run_id is None:
            return needed(row)
        return await self._wait(row, asker)

    async def answer(
        self,
        id: str,
        action: Literal["accept", "decline", "cancel"],
        content: Mapping[str, Any] | None,
        *,
        by: str,
        channel: str,
    ) -> QuestionRow:
        """Record what a person gives, or that they give nothing; the first answer stands.

        Raises `InvalidInput` for what does not fit the form, after which the question is still open;
        `NotFound`; `Conflict` when it was answered already or has expired.
        """
        row = self._store.read(questions.get, id)
        given = dict(content) if content is not None and action == "accept" else None
        if action == "accept":
            given = given or {}
            if (said := _fault(row, given)) is not None:
                raise InvalidInput(f"the answer does not fit: {said}", hint="give what the form asks for")
        elif content:
            raise InvalidInput(f"`{action}` has no content", hint="leave it out")
        status: Any = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}[action]
        # a question about the approval of what was given may stay open for as long again
        good_for = 2 * self._terms().timeout
        return await self._store.write(questions.answer, id, status, given, by, channel, good_for)

    def _binding(self, found: Evaluation, request: CallRequest) -> str:
        caller, tool = request.caller, found.entry.tool
        return binding(
            self._key,
            workspace=self._store.workspace,
            principal=caller.principal,
            client=caller.client,
            run_id=caller.run_id,
            tool=f"{REASON}:{tool.id.canonical}",
            tool_version=tool.version,
            arguments={"arguments": found.arguments, "tool_use_id": request.tool_use_id},
        )

    def _new(
        self, found: Evaluation, request: CallRequest, form: Form, digest: str, terms: Terms
    ) -> NewQuestion:
        caller, tool, identity = request.caller, found.entry.tool, new_id(PREFIX)
        shown = found.entry.shown(found.arguments) if request.disclose else None
        told: dict[str, Any] = {
            "tool": tool.id.canonical,
            "tool_call_id": request.tool_use_id,
            "await_reason": REASON,
            "elicitation": {"mode": "form", "message": form.message, "requested_schema": form.wire},
        }
        if shown is not None:
            told["parameters"] = shown
        told = _redacted(told, found.redact)
        return NewQuestion(
            id=identity,
            session_id=caller.session_id,
            principal=caller.principal,
            client=caller.client,
            tool=tool.id.canonical,
            tool_version=tool.version,
            binding=digest,
            prompt=found.redact("\n".join(_lines(found, request, form, identity, shown))),
            message=form.message,
            schema_json=as_text(form.wire),
            expires_at=self._store.now() + terms.timeout,
            told=told,
            run_id=caller.run_id,
            tool_use_id=request.tool_use_id,
        )

    async def _wait(self, row: QuestionRow, asker: Asker | None) -> Given | Refusal | Deferred:
        """Ask through the caller's own channel and follow the record: whichever ends first."""
        found: list[Given | Refusal | Deferred] = []
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                found.append(await self._follow(row.id))
                group.cancel_scope.cancel()

            async def ask(by: Asker) -> None:
                outcome = await self._put(by, row)
                if outcome is not None:
                    found.append(outcome)
                    group.cancel_scope.cancel()

            group.start_soon(follow)
            if asker is not None:
                group.start_soon(ask, asker)
        return found[0]

    async def _follow(self, id: str) -> Given | Refusal:
        with self._store.watch(f"question:{id}") as watch:
            while True:
                row = self._store.read(questions.get, id)
                if row.status != "pending":
                    return self._settled(row)
                left = row.expires_at - self._store.now()
                if left <= 0:
                    await self._store.write(questions.expire_due)
                    continue
                with anyio.move_on_after(left):
                    await watch.changed()

    async def _put(self, asker: Asker, row: QuestionRow) -> Refusal | Deferred | None:
        """Put the form; `None` once the record holds the answer, or while the run waits on."""
        prompt = prompt_of(row)
        answer = await asker.ask(prompt)
        if answer.verdict == "deferred":
            return Deferred(prompt)
        if answer.verdict == "unanswered":
            return needed(row, answer.reason)
        action: Any = "accept" if answer.verdict == "approve" else answer.reason or "decline"
        try:
            await self.answer(row.id, action, answer.content, by=answer.by, channel=answer.channel)
        except InvalidInput as error:
            return None if row.run_id is not None else needed(row, error.message)
        except Conflict:
            return None  # answered elsewhere first
        return None

    def _settled(self, row: QuestionRow) -> Given | Refusal:
        """What an answered record means for the call that waits for it."""
        if row.status == "accepted":
            return Given(row.id, row.binding, row.tool_version, row.content)
        if row.status == "expired":
            return Refusal(
                "APPROVAL_EXPIRED",
                f"nobody answered question `{row.id}` in time",
                "make the same call again to ask afresh",
                data={"question_id": row.id},
            )
        did = "declined to give" if row.status == "declined" else "gave nothing of"
        return Refusal(
            "CANCELLED",
            f"the person {did} what `{row.tool}` asks for, and it was not called",
            "do something else, or ask the person what they would rather have",
            data={"question_id": row.id},
        )


def begin(tx: Tx, new: NewCall, fence: Callable[[], None] | None, given: Given | None) -> int:
    """`calls.begin`, with what a person gave used up in the same transaction."""
    if given is not None:
        questions.use(tx, given.question_id, given.binding, new.id)
    return calls.begin(tx, new, fence)


def prompt_of(row: QuestionRow) -> Prompt:
    """The question that a record stands for."""
    return Prompt(row.id, row.tool, row.prompt, row.expires_at, row.run_id is not None, row.schema)


def needed(row: QuestionRow, note: str = "") -> Refusal:
    """The call waits for a person who was not reached; how they answer and what to do then."""
    command = f"packhost questions answer {row.id}"
    return Refusal(
        "APPROVAL_REQUIRED",
        f"`{row.tool}` waits for a person's input{f': {note}' if note else ''}",
        f"a person gives it with `{command}`; then make the identical call again",
        data={
            "question_id": row.id,
            "await_reason": REASON,
            "expires_at": row.expires_at,
            "decide": command,
        },
    )


def _not_here(found: Evaluation, why: str) -> Refusal:
    return Refusal(
        "APPROVAL_MODE_UNSUPPORTED",
        f"`{found.entry.tool.id}` asks a person for input before it is called, and {why}",
        "have the agent that a person speaks with call it",
    )


def _fault(row: QuestionRow, content: dict[str, Any]) -> str | None:
    """What of an answer the form does not allow; nothing is coerced and nothing filled in."""
    try:
        whole = whole_characters(content, as_text(content))
    except (ValueError, TypeError, RecursionError):
        whole = False
    if not whole:
        return "it is not plain JSON"
    return input_fault({**row.schema, "additionalProperties": False}, content)


def _redacted(told: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    clean: dict[str, Any] = json.loads(redact_json_text(as_text(told), redact))
    return clean


def _lines(
    found: Evaluation, request: CallRequest, form: Form, identity: str, shown: Mapping[str, Any] | None
) -> list[str]:
    caller, tool = request.caller, found.entry.tool
    run = f", in run {caller.run_id}" if caller.run_id else ""
    lines = [
        f"{label(tool.id.canonical)} asks for your input before it is called:",
        *quoted(form.message),
        f"Called by a client that calls itself {as_text(label(caller.client))} (its own label, no proof), "
        f"for {one_line(caller.principal)}{run}.",
    ]
    if shown is not None:
        lines.append("The agent's own arguments, character for character:")
        lines += argument_lines(shown)
    lines.append(
        f"Question {identity}: what you enter goes to {tool.id.canonical} and to its record; it approves "
        "nothing. Decline to have the call skipped."
    )
    return lines
