"""`packhost runs`: follow what runs, and pause, resume or end it: a person's own recorded act."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import click

from packhost.cli.asking import LOOK_EVERY, answer_nested
from packhost.cli.evidence import show_evidence
from packhost.cli.host import request, with_control
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, pretty, print_facts, print_json, print_table
from packhost.cli.terminal import person_at_hand, refuse_agents
from packhost.control.base import Control
from packhost.errors import NotFound
from packhost.gate.display import visible

_GOING_ON = ("queued", "running")


@click.group("runs", short_help="Follow and steer what runs.", epilog=GROUP_EPILOG)
def command() -> None:
    """Follow and steer what runs."""


@command.command("list", epilog=examples("packhost runs list", "packhost runs list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also the calls that were made directly.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def list_runs(everything: bool, limit: int, workspace: Path | None, as_json: bool) -> None:
    """List runs, the newest first."""
    found = request(workspace, "runs.list", all=everything, limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "STATUS", "KIND", "SESSION", "STARTED"),
        [_row(run) for run in found["runs"]],
        empty="nothing ran yet" if everything else "no run yet; `--all` also lists direct calls",
    )


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    return run["id"], run["status"], run["kind"], run["session_id"], moment(run["created_at"])


@command.command("show", epilog=examples("packhost runs show run_01k…"))
@click.argument("id")
@click.option("--full", is_flag=True, help="With the request that started it.")
@workspace_option
@json_option
def show(id: str, full: bool, workspace: Path | None, as_json: bool) -> None:
    """Show run ID with its calls, approvals and result, and what its record proves."""
    found = request(workspace, "runs.show", id=id, evidence=True)
    if as_json:
        print_json(found)
        return
    print_facts(
        [
            *_facts(found),
            ("Request", pretty(found["spec"]) if full and found["spec"] else None),
            ("Result", pretty(found["result"]) if found["result"] else None),
        ]
    )
    if found["calls"]:
        click.echo()
        rows = [
            (call["step"], call["tool"], call["status"], call["code"] or "", call["approval_id"] or "")
            for call in found["calls"]
        ]
        print_table(("STEP", "TOOL", "STATUS", "CODE", "APPROVAL"), rows, empty="")
    if found["evidence"] is not None:
        show_evidence(found["evidence"])


def _facts(run: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("Run", run["id"]),
        ("Kind", run["kind"]),
        ("Status", run["status"]),
        ("Outcome", run["outcome"]),
        ("Waits for", run["waiting_on"]),
        ("Paused by", run["paused_by"]),
        ("Reason", run["reason"]),
        ("Session", run["session_id"]),
        ("Client", run["client"]),
        ("Started", moment(run["created_at"])),
        ("Ended", moment(run["ended_at"])),
    ]


@command.command("export", epilog=examples("packhost runs export run_01k… --out run.json"))
@click.argument("id")
@click.option("--node", default="", help="Of a workflow: the node whose turns are meant.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it into this file."
)
@workspace_option
@json_option
def export(id: str, node: str, out: Path | None, workspace: Path | None, as_json: bool) -> None:
    """Print run ID as a trace, which `packhost trace check` holds to the rules."""
    trace = request(workspace, "runs.trace", id=id, node=node)
    if out is None:
        print_json(trace)
        return
    try:
        out.write_text(json.dumps(trace, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        said = (error.strerror or "it failed").lower()
        raise NotFound(f"`{out}` cannot be written: {said}", hint="name another file") from None
    if as_json:
        print_json({"file": str(out), "messages": len(trace["messages"])})
    else:
        click.echo(f"wrote {out}")


@command.command("events", epilog=examples("packhost runs events run_01k… --after 120 --json"))
@click.argument("id")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this one's number.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=200, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def events(id: str, after: int, limit: int, workspace: Path | None, as_json: bool) -> None:
    """Print what happened in run ID, first to last."""
    found = request(workspace, "runs.events", id=id, after=after, limit=limit)
    if as_json:
        print_json(found)
        return
    for event in found["events"]:
        data = json.dumps(event["data"], ensure_ascii=False) if event["data"] else ""
        click.echo(f"{event['id']:>6} {moment(event['ts'])} {event['type']} {visible(data)}".rstrip())


@command.command("pause", epilog=examples("packhost runs pause run_01k… --reason 'let me look'"))
@click.argument("id")
@click.option("--reason", default="", help="Why; it is recorded.")
@workspace_option
@json_option
def pause(id: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Pause run ID at its next safe point; only a person resumes it then."""
    _say(request(workspace, "runs.pause", id=id, reason=reason), as_json)


@command.command("resume", epilog=examples("packhost runs resume run_01k…"))
@click.argument("id")
@workspace_option
@json_option
def resume(id: str, workspace: Path | None, as_json: bool) -> None:
    """Let run ID go on. With no host running, it runs here until it ends or pauses."""
    refuse_agents("packhost runs resume")
    _say(with_control(workspace, lambda control: _resume(control, id)), as_json)


async def _resume(control: Control, id: str) -> dict[str, Any]:
    run: dict[str, Any] = await control.request("runs.resume", {"id": id})
    host = (await control.request("status", {}))["host"]
    if host is None or host["pid"] != os.getpid():
        return run
    async with anyio.create_task_group() as group:
        if person_at_hand():
            group.start_soon(answer_nested, control, lambda approval: approval["run_id"] == id)
        while run["status"] in _GOING_ON:
            await anyio.sleep(LOOK_EVERY)
            run = await control.request("runs.show", {"id": id})
        group.cancel_scope.cancel()
    return run


@command.command("abort", epilog=examples("packhost runs abort run_01k… --reason 'wrong branch'"))
@click.argument("id")
@click.option("--reason", default="", help="Why; it is recorded.")
@workspace_option
@json_option
def abort(id: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """End run ID now."""
    _say(request(workspace, "runs.abort", id=id, reason=reason), as_json)


def _say(run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(run)
    else:
        print_facts(_facts(run))
