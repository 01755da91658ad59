"""`packhost questions`: what tools ask of a person before they are called, and the person's answers.

What is given is read from `/dev/tty`, so that a process without a terminal, an agent's among them, answers
nothing in a person's place.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_facts, print_json, print_table
from packhost.cli.run import OK, REFUSED
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.errors import InvalidInput
from packhost.gate.display import label, one_line

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\Z", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z", re.ASCII)
_DIGITS = 300
_BOOLEANS = {"yes": True, "y": True, "no": False, "n": False}


@click.group("questions", short_help="What tools ask of a person.", epilog=GROUP_EPILOG)
def command() -> None:
    """What tools ask of a person before they are called."""


@command.command("list", epilog=examples("packhost questions list", "packhost questions list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def list_questions(everything: bool, limit: int, workspace: Path | None, as_json: bool) -> None:
    """List questions, the newest first."""
    found = request(workspace, "questions.list", status=None if everything else "pending", limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "STATUS", "TOOL", "ASKED BY", "ENDS"),
        [_row(row) for row in found["questions"]],
        empty="there is none" if everything else "no tool waits for a person's input",
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    left = round(row["expires_at"] - time.time())
    ends = f"in {max(0, left)} s" if row["status"] == "pending" else ""
    return row["id"], row["status"], row["tool"], row["client"], ends


@command.command("show", epilog=examples("packhost questions show qn_01k…"))
@click.argument("id")
@workspace_option
@json_option
def show(id: str, workspace: Path | None, as_json: bool) -> None:
    """Show question ID: what is asked, and by which call."""
    found = request(workspace, "questions.show", id=id)
    if as_json:
        print_json(found)
        return
    click.echo(found["prompt"])
    print_facts(
        [
            ("Fields", ", ".join(found["requested_schema"]["properties"])),
            ("Status", found["status"]),
            ("Session", found["session_id"]),
            ("Run", found["run_id"]),
            ("Answered by", found["answered_by"]),
            ("Channel", found["channel"]),
            ("Used by", found["consumed_by"]),
        ]
    )


@command.command("answer", epilog=examples("packhost questions answer qn_01k…"))
@click.argument("id")
@workspace_option
@json_option
@click.pass_context
def answer(ctx: click.Context, id: str, workspace: Path | None, as_json: bool) -> None:
    """Answer question ID: asks you field by field at your terminal.

    A line left empty gives nothing for a field that is not needed; Ctrl-D leaves the question open. It
    approves nothing: where the call needs an approval, you are asked for that with all arguments.
    """
    refuse_agents("packhost questions answer")
    found = request(workspace, "questions.show", id=id)
    if found["status"] == "pending":
        with Terminal("answering") as terminal:
            content = filled(terminal, found["prompt"], found["requested_schema"])
        if content is None:
            click.echo("left open", err=True)
            ctx.exit(REFUSED)
        found = request(workspace, "questions.answer", id=id, action="accept", content=content)
    _say(found, as_json)
    ctx.exit(OK if found["status"] == "accepted" else REFUSED)


@command.command("decline", epilog=examples("packhost questions decline qn_01k…"))
@click.argument("id")
@workspace_option
@json_option
def decline(id: str, workspace: Path | None, as_json: bool) -> None:
    """Decline to answer question ID: its call is skipped."""
    _say(request(workspace, "questions.answer", id=id, action="decline"), as_json)


def filled(terminal: Terminal, prompt: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a person enters at the terminal; `None` when they leave it open."""
    terminal.write(f"\n{prompt}\n")
    required, content = schema.get("required", ()), dict[str, Any]()
    for name, field in schema["properties"].items():
        said = ""
        while True:
            line = terminal.line(f"{said}{_asked(name, field, name in required)}: ")
            if line is None:
                return None
            if not line and name not in required:
                break
            try:
                content[name] = read_field(name, field, line)
                break
            except InvalidInput as error:
                said = f"{error.message}\n"
    return content


def read_field(name: str, field: Mapping[str, Any], line: str) -> Any:
    """A typed line as the field's value. Raises `InvalidInput`."""
    kind = field["type"]
    if kind == "boolean":
        if line.lower() in _BOOLEANS:
            return _BOOLEANS[line.lower()]
        raise InvalidInput(f"`{name}` is yes or no", hint="write one of them")
    short = len(line) <= _DIGITS
    if kind == "integer" and short and _WHOLE.match(line):
        return int(line)
    if kind == "number" and short and _NUMBER.match(line):
        return int(line) if _WHOLE.match(line) else float(line)
    if kind in ("integer", "number"):
        raise InvalidInput(f"`{name}` is {'a whole number' if kind == 'integer' else 'a number'}", hint="")
    if "enum" in field and line not in field["enum"]:
        raise InvalidInput(f"`{name}` is one of {', '.join(field['enum'])}", hint="write one of them")
    return line


def _asked(name: str, field: Mapping[str, Any], needed: bool) -> str:
    words = [label(str(field.get("title") or name))]
    if field.get("description"):
        words.append(f"({one_line(field['description'])})")
    if field["type"] == "boolean":
        words.append("[yes/no]")
    if "enum" in field:
        words.append(f"[{'/'.join(one_line(one) for one in field['enum'])}]")
    return " ".join(words) + ("" if needed else ", if any")


def _say(question: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(question)
        return
    by = f" by {question['answered_by']}" if question["answered_by"] else ""
    click.echo(f"{question['id']} is {question['status']}{by}: {question['tool']}")
