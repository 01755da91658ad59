"""`packhost accept`: look at what `packhost.yaml` asks for beyond what was accepted, and accept it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import click

from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import OK, REFUSED
from packhost.cli.signing import take_pen
from packhost.cli.sources import coloured, definition_lines, source_lines
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.gate.display import visible

_NAMED = 5
"""Tools of one missing line that are named; the others are counted."""


@click.command(
    "accept",
    short_help="Look at what packhost.yaml asks for, and accept it.",
    epilog=examples("packhost accept", "packhost accept -w ~/project"),
)
@click.option("--yes", is_flag=True, hidden=True, help="Accept without asking, for scripts.")
@workspace_option
@json_option
@click.pass_context
def command(ctx: click.Context, yes: bool, workspace: Path | None, as_json: bool) -> None:
    """Show what packhost.yaml would make possible beyond what was accepted, and ask you at your terminal.

    Until then the copy last accepted holds, and only the file's narrowing edits are live. Where an operator
    is set up, the passphrase is asked for.
    """
    refuse_agents("packhost accept")
    found = request(workspace, "accept.changes")
    if not found["pending"]:
        _end(ctx, as_json, found, "nothing waits: packhost.yaml is as it was accepted, or narrower")
    operator, signed = request(workspace, "operator.show"), None
    if operator["state"] != "none" or not yes:
        with Terminal("accepting") as terminal:
            listing = _listing(found)
            terminal.write(f"{listing if coloured() else click.unstyle(listing)}\n")
            if not terminal.confirm("Accept this?"):
                _end(ctx, as_json, found, "not accepted; the copy last accepted holds", REFUSED)
            pen = take_pen(terminal, operator)
            signed = pen.consent(found["digest"]) if pen is not None else None
    elif not as_json:
        click.echo(_listing(found))
    request(workspace, "accept.apply", digest=found["digest"], channel="cli", signed=signed)
    sentence = "accepted; it is in force"
    if not as_json:
        sentence = "\n".join([sentence, *_withheld(request(workspace, "status")["withheld"])])
    _end(ctx, as_json, {**found, "pending": False, "accepted": True}, sentence)


def _withheld(held: list[dict[str, str]]) -> list[str]:
    """What is not on offer all the same, and the line that would change it."""
    missing: dict[tuple[str, str], list[str]] = {}
    for one in held:
        needed = one["reason"].rpartition(" does not cover ")[2].strip("`")
        missing.setdefault((one["layer"], needed), []).append(one["tool"])
    lines = ["Still withheld:"] if missing else []
    for (layer, needed), tools in missing.items():
        where = "`bound`" if layer.startswith("workspace bound") else f"the scopes of {layer}"
        names = ", ".join(tools[:_NAMED]) + (
            f" and {len(tools) - _NAMED} more" if len(tools) > _NAMED else ""
        )
        lines.append(visible(f"  {names}: to allow it, add `- {needed}` to {where}, then accept again"))
    return lines


def _listing(found: dict[str, Any]) -> str:
    lines = ["Accepting packhost.yaml would make this possible:"]
    for change in found["changes"]:
        mark = "  CODE  " if change["code"] else "  - "
        lines.append(f"{mark}{visible(change['text'])}")
    if not found["changes"] and not found["definitions"]:
        lines.append("  nothing beyond what holds already; your consent is put on record")
    lines += source_lines(found["sources"])
    lines += definition_lines(found["definitions"])
    if any(change["code"] for change in found["changes"]):
        lines.append("Lines marked CODE let a program from elsewhere run under your account.")
    return "\n".join(lines)


def _end(
    ctx: click.Context, as_json: bool, found: dict[str, Any], sentence: str, status: int = OK
) -> NoReturn:
    if as_json:
        told = {key: found[key] for key in ("changes", "sources", "definitions", "digest")}
        print_json({"accepted": not found["pending"], **told})
    else:
        click.echo(sentence)
    ctx.exit(status)
