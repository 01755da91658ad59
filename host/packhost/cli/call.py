"""`packhost call`: one call through the very gate that agents' calls pass.

Where a person must approve, or give what a tool asks for, the question goes to `/dev/tty`; without one, and
in an agent's shell, the answer is `APPROVAL_REQUIRED` at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import click

from packhost.cli.asking import answer_nested, decide, signature
from packhost.cli.host import with_control
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import pretty, print_json
from packhost.cli.questions import filled
from packhost.cli.run import FAILED, OK, exit_status
from packhost.cli.terminal import Terminal, Verdict, person_at_hand
from packhost.control.base import Control
from packhost.control.tools import CLI_CLIENT
from packhost.errors import InvalidInput
from packhost.gate.display import visible


@click.command(
    "call",
    short_help="Call one tool through the gate.",
    epilog=examples(
        """packhost call workspace:read_file '{"path": "README.md"}'""",
        "packhost call workspace:write_file @arguments.json",
        "jq -n '{path: \".\"}' | packhost call workspace:list_directory - --json",
    ),
)
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@click.option(
    "--session", metavar="ID", help="The session to call in; left out, your own at the command line."
)
@click.option("--key", metavar="KEY", help="Names this call: made again under it, it does nothing twice.")
@click.option(
    "--intent",
    type=click.Choice(["mandatory", "best-effort"]),
    help="`mandatory`: start nothing before it is on record that it starts, not even what only reads.",
)
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    tool: str,
    arguments: str,
    session: str | None,
    key: str | None,
    intent: str | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Call one TOOL through the gate, with arguments as JSON, from a file or from standard input.

    Where a person must approve, the question goes to your terminal; without one the exit code is 4.
    """
    params: dict[str, Any] = {"tool": tool, "arguments": read_arguments(arguments)}
    given = {"session": session, "key": key, "intent": intent}
    params.update({name: value for name, value in given.items() if value is not None})
    outcome = _call(workspace, params)
    if as_json:
        print_json(outcome)
    elif outcome["status"] == "completed":
        click.echo(visible(pretty(outcome["value"])))
    else:
        _say_refusal(outcome["refusal"])
    ctx.exit(_status(outcome))


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call: JSON, `@FILE`, or `-` for standard input; raises `InvalidInput`."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InvalidInput(
                f"`{text[1:]}` cannot be read: {said.lower()}", hint="name a file of JSON after the `@`"
            ) from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the arguments are not JSON: {str(error).lower()}", hint="""write them as '{"name": "value"}'"""
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput(
            "the arguments are not a JSON object", hint="""write them as '{"name": "value"}'"""
        )
    return value


def _call(workspace: Path | None, params: dict[str, Any]) -> dict[str, Any]:
    """Call, ask where that is needed and possible, and call again.

    The host is let go while the person reads: in this process it would hold the workspace's lock.
    """
    ask = person_at_hand()
    outcome = with_control(workspace, lambda control: _attempt(control, params, ask))
    while ask and (question := outcome.get("refusal", {}).get("question_id")) is not None:
        if not _filled_in(workspace, question):
            return outcome
        outcome = with_control(workspace, lambda control: _attempt(control, params, ask))
    approval = _wanted(outcome)
    while ask and approval is not None:
        shown: dict[str, Any] = with_control(workspace, _show(approval))
        operator = with_control(workspace, _operator)
        with Terminal() as terminal:
            verdict = terminal.decide(shown["prompt"])
            signed = signature(terminal, operator, shown, verdict)
        if verdict is None:
            return outcome
        decided = with_control(workspace, _decide(approval, verdict, signed))
        if decided["status"] == "pending":
            return outcome  # another person must agree
        if decided["status"] == "denied":
            return {"status": "refused", "refusal": _denied(decided)}
        outcome = with_control(workspace, lambda control: _attempt(control, params, ask))
        approval = _wanted(outcome)
    return outcome


def _filled_in(workspace: Path | None, question: str) -> bool:
    """Have the person give what a tool asks for; whether they did."""
    shown: dict[str, Any] = with_control(workspace, _request("questions.show", id=question))
    with Terminal("answering") as terminal:
        content = filled(terminal, shown["prompt"], shown["requested_schema"])
    if content is None:
        return False
    given = {"id": question, "action": "accept", "content": content}
    with_control(workspace, _request("questions.answer", **given))
    return True


def _request(op: str, **params: Any) -> Callable[[Control], Awaitable[Any]]:
    return lambda control: control.request(op, params)


def _wanted(outcome: dict[str, Any]) -> str | None:
    """The approval that a call waits for."""
    refusal = outcome.get("refusal", {})
    return refusal.get("approval_id") if refusal.get("code") == "APPROVAL_REQUIRED" else None


def _show(approval: str) -> Callable[[Control], Awaitable[Any]]:
    return lambda control: control.request("approvals.show", {"id": approval})


async def _operator(control: Control) -> dict[str, Any]:
    found: dict[str, Any] = await control.request("operator.show", {})
    return found


def _decide(
    approval: str, verdict: Verdict, signed: dict[str, Any] | None
) -> Callable[[Control], Awaitable[dict[str, Any]]]:
    return lambda control: decide(control, approval, verdict, signed)


def _denied(approval: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": "APPROVAL_DENIED",
        "message": f"`{approval['decided_by']}` rejected this call to `{approval['tool']}`",
        "next": "nothing was run; the same call, made again, asks again, three times at the most",
        "approval_id": approval["id"],
    }


async def _attempt(control: Control, params: dict[str, Any], ask: bool) -> dict[str, Any]:
    """One call; what a run that it starts must ask meanwhile is asked at the terminal."""
    if not ask:
        done: dict[str, Any] = await control.request("call", {**params, "attended": False})
        return done
    outcome: dict[str, Any] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(answer_nested, control, _ours)
        outcome = await control.request("call", params)
        group.cancel_scope.cancel()
    return outcome


def _ours(approval: dict[str, Any]) -> bool:
    return bool(approval["client"] == CLI_CLIENT)


def _say_refusal(refusal: dict[str, Any]) -> None:
    said = visible(refusal.get("message", ""))
    click.echo(f"{click.style('refused', fg='yellow', bold=True)} {refusal['code']}: {said}", err=True)
    # Of the layer that protects files the patterns are what no tool may write.
    there = "protected" if refusal.get("layer") == "protected" else "allowed there"
    for name, label in (("rule", "rule"), ("layer", "layer"), ("patterns", there), ("path", "at")):
        if refusal.get(name):
            value = refusal[name]
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            click.echo(f"  {label}: {visible(str(shown))}", err=True)
    if refusal.get("next"):
        click.echo(f"  next: {visible(refusal['next'])}", err=True)


def _status(outcome: dict[str, Any]) -> int:
    if outcome["status"] == "completed":
        return OK
    code = outcome["refusal"]["code"]
    # Said by a tool that ran: what it looked for is not there. A missing tool has a code of its own.
    return FAILED if code == "NOT_FOUND" else exit_status(code)
