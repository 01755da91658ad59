"""`packhost explain`: every step that the gate would take with a call; nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.cli.call import read_arguments
from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.gate.display import visible

_SAYING = {"allow": "it would run", "ask": "a person would be asked first", "refuse": "it would be refused"}


@click.command(
    "explain",
    short_help="Say what would happen to a call; nothing runs.",
    epilog=examples("""packhost explain workspace:write_file '{"path": "src/a.py", "content": ""}'"""),
)
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@click.option("--session", metavar="ID", help="The session to look at it in.")
@workspace_option
@json_option
def command(tool: str, arguments: str, session: str | None, workspace: Path | None, as_json: bool) -> None:
    """Say what would happen to a call of TOOL, step by step; nothing runs and nothing is recorded.

    The exit code is 0 whatever the answer: the `verdict` of `--json` is `allow`, `ask` or `refuse`.
    """
    trace = request(workspace, "explain", tool=tool, arguments=read_arguments(arguments), session=session)
    if as_json:
        print_json(trace)
    else:
        _print(trace)


def _print(trace: dict[str, Any]) -> None:
    click.echo(f"{click.style(trace['tool'], bold=True)}: {_SAYING[trace['verdict']]}")
    for step in trace["steps"]:
        mark = click.style("✓", fg="green") if step["passed"] else click.style("✗", fg="red")
        place = f" ({step['place']})" if step["place"] else ""
        click.echo(f"{mark} {step['step']:<8} {visible(step['detail'])}{place}")
    refusal = trace["refusal"]
    if refusal:
        click.echo(f"{refusal['code']}: {visible(refusal['message'])}")
        if refusal.get("next"):
            click.echo(f"next: {visible(refusal['next'])}")
