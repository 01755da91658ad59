"""Runs over the API: started, listed, shown, steered.

A run is started by the tool that starts runs, through the gate and with everything that it checks; there is
no other way in. Whoever steers as a person (an end user their own run, an operator any) does what the command
line does; a program asks by the tools that an agent has, and so by the approvals that they need.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import anyio
from pydantic import AliasChoices, Field
from starlette.types import ASGIApp

from packhost.control import records
from packhost.executions.ops import PERSON
from packhost.gate.inline import names_secrets
from packhost.gate.types import Caller, CallRequest, Completed, Deferred, Outcome
from packhost.http.envelopes import envelope, stands_still
from packhost.http.events import ENDED, EventStream, visible
from packhost.http.kit import CLIENT, Call, Model, Reply
from packhost.http.problems import Problem, of_refusal
from packhost.journal import canonical, digest
from packhost.store.ops import requests

EXECUTE: Final = "agent-runtime:execute-turn"
PAUSE: Final = "agent-runtime:pause_turn"
RESUME: Final = "agent-runtime:resume_workflow"
ABORT: Final = "agent-runtime:abort_turn"
LONGEST_WAIT: Final = 600.0
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait=(\d{1,6})(?:$|[,;\s])")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}\Z")
SESSION: Final = r"^[A-Za-z0-9._-]{1,64}$"


class Dispatch(Model):
    """A run to start: the arguments of `agent-runtime:execute-turn`, whose own schema has the last word."""

    session_id: str | None = Field(
        None, pattern=SESSION, description="The session whose history goes on; a new one if left out."
    )
    model_profile: str | None = Field(None, min_length=1, description="A model profile of packhost.yaml.")
    agent: str | None = Field(None, min_length=1, description="A saved agent of packhost.yaml.")
    messages: list[dict[str, Any]] | None = Field(None, description="The new messages, the last the user's.")
    tools: list[str] | None = Field(None, description="Patterns of the tools that the model is offered.")
    assistant_message_id: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        validation_alias=AliasChoices("assistant_message_id", "assistantMessageId"),
        description="Names the message that the run ends with.",
    )
    loop: bool | None = Field(None, description="Whether the host runs the calls that the model asks for.")
    limits: dict[str, Any] | None = Field(None, description="Budgets of this run.")
    workflow: Any = Field(None, description="A workflow, or the name of a saved one.")
    stream: bool | None = Field(None, description="Whether the provider is asked for a stream.")
    export: bool | None = Field(None, description="Whether the result is also written to a file.")
    runtime_tools: list[dict[str, Any]] | None = Field(None, description="Tools of this run alone.")
    client_tools: list[dict[str, Any]] | None = Field(None, description="Tools that the client runs.")
    client_tools_policy: dict[str, Any] | None = Field(None, description="Which tools of pages are let in.")
    approval: dict[str, Any] | None = Field(None, description="Before which tools a person is asked.")
    disclose_tool_arguments: dict[str, Any] | None = Field(
        None, description="Whose arguments are shown where a tool waits for a person's input."
    )
    tool_search: dict[str, Any] | None = Field(None, description="Whether many tools are held back.")
    subagent_config: dict[str, Any] | None = Field(None, description="What `spawn_subagent` may start.")
    variables: dict[str, Any] | None = Field(None, description="Values for hidden parameters.")
    intent_catalog: Any = Field(None, description="Taken and ignored.")
    secrets: dict[str, Any] | None = Field(
        None, description="Has to be empty: secrets are named in packhost.yaml and never sent."
    )
    stream_response: bool = Field(False, description="Answer with the run's events as they come.")


class WaitHeaders(Model):
    """What may come as headers."""

    prefer: str | None = Field(
        None, alias="Prefer", description="`wait=SECONDS` waits for the run to end or pause."
    )


class DispatchHeaders(WaitHeaders):
    """What may come as headers."""

    idempotency_key: str | None = Field(
        None,
        alias="Idempotency-Key",
        max_length=255,
        description="Names this request: sent again under it, it starts nothing twice.",
    )


class Steer(Model):
    """Why a run is paused or ended."""

    reason: str = Field("", max_length=1_000)


class ToolOutput(Model):
    """What came of a call that the run's caller made."""

    result: Any = Field(description="Text or any other JSON that the model reads.")
    is_error: bool = Field(False, validation_alias=AliasChoices("is_error", "isError"))


class Resume(Model):
    """What the run waits for, and how to answer once it goes on."""

    tool_outputs: dict[str, ToolOutput] | None = Field(
        None,
        validation_alias=AliasChoices("tool_outputs", "toolOutputs"),
        description="What came of calls in `awaits`, by `tool_call_id`; all, or some now and some later.",
    )
    checkpoint: str | None = Field(
        None, min_length=1, max_length=64, description="The pause that is meant; 409 when it is over."
    )
    assistant_message_id: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        validation_alias=AliasChoices("assistant_message_id", "assistantMessageId"),
        description="Names the message that the run ends with, in the place of the name that it began with.",
    )
    client_tools: list[dict[str, Any]] | None = Field(
        None,
        validation_alias=AliasChoices("client_tools", "clientTools"),
        description="The whole set of tools that the client runs, in the place of the run's.",
    )
    client_tools_fingerprint: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        validation_alias=AliasChoices("client_tools_fingerprint", "clientToolsFingerprint"),
        description="Names the set that is meant; 409 where the run has another.",
    )
    stream_response: bool = Field(
        False,
        validation_alias=AliasChoices("stream_response", "streamResponse"),
        description="Answer with the run's events as they come.",
    )


class RunsQuery(Model):
    """Which runs, and how many."""

    cursor: str | None = Field(None, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=500)
    direct: bool = Field(False, description="Also the calls that were made directly.")


class Run(Model):
    """A run in a line of a listing; times in seconds since the epoch."""

    id: str
    kind: str
    status: str
    outcome: str | None
    session_id: str
    principal: str
    client: str
    parent: str | None
    agent: str | None
    waiting_on: str | None
    pause_requested: bool
    paused_by: str | None
    reason: str | None
    created_at: float
    updated_at: float
    ended_at: float | None


class Runs(Model):
    """A page of runs, newest first; `next` is `null` on the last one."""

    runs: list[Run]
    next: str | None


class RunDetail(Run):
    """A run with its request, its calls, what it asked of people, and its result."""

    spec: dict[str, Any]
    result: Any
    calls: list[dict[str, Any]]
    approvals: list[dict[str, Any]]


async def start(call: Call) -> Reply | ASGIApp:
    """`POST /v1/runs`: through the gate as the tool is called, then follow or wait."""
    body: Dispatch = call.body
    given = body.model_dump(exclude_none=True, exclude={"stream_response", "session_id", "secrets"})
    if body.secrets:
        raise Problem(
            400,
            "RUNTIME_AGENT_TRANSIENT_SECRETS_UNSUPPORTED"
            if body.workflow is None
            else "RUNTIME_FLOW_TRANSIENT_SECRETS_UNSUPPORTED",
            "secrets are not sent with a request",
            hint="name them under `secrets` in packhost.yaml, and refer to them as `{{secret:NAME}}`",
        )
    if names_secrets(given):
        call.demand("secrets:read")
    session = body.session_id or f"api-{os.urandom(10).hex()}"
    key = await _idempotency(call, body)
    request = CallRequest(EXECUTE, {**given, "background": True}, _caller(call, session), idem_key=key)
    value = _value(await call.parts.gate.call(request))
    return await _answer(call, value["run_id"], body.stream_response, started=True)


async def listing(call: Call) -> Reply:
    """`GET /v1/runs`: the caller's own, newest first; an operator and an auditor see all."""
    about = f"runs {call.identity.principal}"
    before = call.shared.cursors.read(about, call.query.cursor)
    params: dict[str, Any] = {"limit": call.query.limit, "all": call.query.direct, "before": before}
    if not call.identity.sees_all:
        params["principal"] = call.identity.principal
    found = (await records.runs_list(call.parts, params))["runs"]
    full = len(found) == call.query.limit
    return Reply({"runs": found, "next": call.shared.cursors.seal(about, found[-1]["id"]) if full else None})


async def show(call: Call) -> Reply:
    """`GET /v1/runs/{id}`."""
    visible(call, call.path["id"])
    return Reply(await records.runs_show(call.parts, {"id": call.path["id"]}))


async def result(call: Call) -> Reply:
    """`GET /v1/runs/{id}/result`: the envelope, waited for where that is preferred."""
    visible(call, call.path["id"])
    return await _waited(call, call.path["id"])


async def pause(call: Call) -> Reply:
    """`POST /v1/runs/{id}/pause`."""
    run_id = _steered(call)
    if _as_person(call):
        params = {"id": run_id, "reason": call.body.reason, "end_user": call.identity.role == "end-user"}
        await records.runs_pause(call.parts, params)
    else:
        await _by_tool(call, PAUSE, {"run_id": run_id, "reason": call.body.reason})
    return Reply(envelope(call.parts, run_id), 202)


async def resume(call: Call) -> Reply | ASGIApp:
    """`POST /v1/runs/{id}/resume`: one resumption wins; 409 says who is faster, 404 that nothing is left.

    Outputs come from whoever makes the run's calls, and so by the tool, whatever the role.
    """
    run_id = _steered(call)
    row = visible(call, run_id)
    if row.status in ENDED:
        raise Problem(
            404,
            "NOT_FOUND",
            f"run `{run_id}` is {row.status}: nothing is left to resume",
            hint="read its result with `GET /v1/runs/{id}`, or start a new run",
        )
    paused_by, mine = row.paused_by or "", f"{PERSON}{call.identity.principal}"
    if call.identity.role == "end-user" and paused_by.startswith(PERSON) and paused_by != mine:
        raise Problem(403, "FORBIDDEN", "somebody else paused the run", hint="wait until they let it go on")
    said = call.body.model_dump(exclude={"stream_response"})
    meant = {name: value for name, value in said.items() if value is not None}  # a result may be null
    if _as_person(call) and not meant:
        end_user = call.identity.role == "end-user"
        await records.runs_resume(call.parts, {"id": run_id, "end_user": end_user})
    else:
        await _by_tool(call, RESUME, {"run_id": run_id, **meant})
    return await _answer(call, run_id, call.body.stream_response, started=False)


async def abort(call: Call) -> Reply:
    """`POST /v1/runs/{id}/abort`: returns once the run has ended."""
    run_id = _steered(call)
    if _as_person(call):
        await records.runs_abort(call.parts, {"id": run_id, "reason": call.body.reason})
    else:
        await _by_tool(call, ABORT, {"run_id": run_id, "reason": call.body.reason})
    return Reply(envelope(call.parts, run_id))


def _steered(call: Call) -> str:
    row = visible(call, call.path["id"])
    if row.principal != call.identity.principal and call.identity.role != "operator":
        raise Problem(403, "FORBIDDEN", "another's run is an operator's to steer", hint="use another token")
    return str(row.id)


def _as_person(call: Call) -> bool:
    """An operator and an end user are people; a caller is a program, which asks by the tools."""
    return call.identity.role in ("operator", "end-user")


def _caller(call: Call, session: str) -> Caller:
    who = call.identity
    secrets, end_user = who.may("secrets:read"), who.role == "end-user"
    return Caller(
        who.principal,
        CLIENT,
        session,
        attended=False,
        secrets=secrets,
        end_user=end_user,
        tenant=who.tenant,
    )


async def _by_tool(call: Call, tool: str, arguments: Mapping[str, Any]) -> Any:
    caller = _caller(call, call.shared.cursors.session(call.identity.principal))
    return _value(await call.parts.gate.call(CallRequest(tool, arguments, caller)))


def _value(outcome: Outcome) -> Any:
    if isinstance(outcome, Completed):
        return outcome.value
    assert not isinstance(outcome, Deferred), "nobody asks here, so nothing is put off"
    raise of_refusal(outcome)


async def _idempotency(call: Call, body: Dispatch) -> str | None:
    """What names the call in the journal; the same request under the same key is the same call."""
    key = call.request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.match(key):
        raise Problem(
            400,
            "INVALID_INPUT",
            "the Idempotency-Key cannot be used",
            hint="use 1 to 255 visible ASCII characters, new for each request",
        )
    asked = digest(canonical(body.model_dump(exclude={"stream_response"})))
    try:
        await call.parts.store.write(requests.claim, call.identity.principal, key, asked)
    except requests.KeyTaken as taken:
        raise Problem(422, "IDEMPOTENCY_CONFLICT", taken.message, hint=taken.hint) from None
    return "api:" + digest(canonical([call.identity.principal, key, asked]))


async def _answer(call: Call, run_id: str, stream: bool, *, started: bool) -> Reply | ASGIApp:
    if stream:
        headers = [(b"location", f"/v1/runs/{run_id}".encode())]
        return EventStream(call, run_id, 0, headers=headers)
    reply = await _waited(call, run_id)
    status = 202 if reply.value["status"] == "running" else 200
    headers_out = {**reply.headers, **({"Location": f"/v1/runs/{run_id}"} if started else {})}
    return Reply(reply.value, status, headers_out)


async def _waited(call: Call, run_id: str) -> Reply:
    """The envelope; waited for as long as `Prefer: wait=` says, until the run ends or stands still."""
    preferred = _WAIT.search(call.request.headers.get("prefer", "").lower())
    if preferred is None:
        return Reply(envelope(call.parts, run_id))
    store = call.parts.store
    with store.watch(f"run:{run_id}") as watch:
        with anyio.move_on_after(min(float(preferred[1]), LONGEST_WAIT)):
            while not store.read(stands_still, run_id):
                await watch.changed()
    return Reply(envelope(call.parts, run_id), headers={"Preference-Applied": f"wait={preferred[1]}"})
