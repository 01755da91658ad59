"""`packhost policy`: test rules by a table of cases, look for mistakes, replay calls under other rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from packhost.app.configuring import Supposition, present, supposed
from packhost.cli.history import read_history, since_option
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json, print_table
from packhost.cli.replaying import Replay, replay
from packhost.cli.run import FAILED, OK
from packhost.gate.cases import Case, differences, load_cases
from packhost.gate.display import visible
from packhost.gate.judge import Judgement, judge
from packhost.rules.analysis import KnownTool, findings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("policy", short_help="Test, check and replay the rules.", epilog=GROUP_EPILOG)
def command() -> None:
    """Test, check and replay the rules of packhost.yaml; nothing runs."""


@command.command(
    "test",
    epilog=examples("packhost policy test policy-tests.yaml", "packhost policy test tests.yaml --json"),
)
@click.argument("file", type=_FILE)
@workspace_option
@json_option
@click.pass_context
def test(ctx: click.Context, file: Path, workspace: Path | None, as_json: bool) -> None:
    """Hold packhost.yaml to a table of cases in FILE; the exit code is 1 when one of them fails.

    The file is taken as if it were accepted as it stands, so that the answer is the same in CI and for
    everyone. Paths are resolved as they lie on disk, and what this machine can enforce does not count.
    """
    cases, told, failed = load_cases(file), [], 0
    with supposed(workspace) as here:
        for problem in here.configuration.problems:
            click.echo(f"{click.style('·', fg='yellow')} {visible(problem)}", err=True)
        for placed in cases:
            found = _judged(placed.case, here)
            differs = differences(placed.case, found)
            failed += bool(differs)
            told.append(_case_json(placed.title, str(placed.place), found, differs))
            if not as_json:
                _tell_case(told[-1], len(told), len(cases))
    if as_json:
        print_json({"ok": not failed, "passed": len(cases) - failed, "failed": failed, "cases": told})
    else:
        click.echo(f"{len(cases) - failed} passed, {failed} failed")
    ctx.exit(FAILED if failed else OK)


def _judged(case: Case, here: Supposition) -> Judgement:
    return judge(
        case.tool,
        case.arguments,
        principal=case.principal,
        client=case.client,
        level=case.level or here.configuration.autonomy.default,
        configuration=here.configuration,
        root_descriptor=here.root.descriptor,
    )


def _case_json(
    title: str, place: str, found: Judgement, differs: tuple[tuple[str, str, str], ...]
) -> dict[str, Any]:
    return {
        "case": title,
        "place": place,
        "ok": not differs,
        "verdict": found.verdict,
        "code": found.code,
        "step": found.step,
        "grounds": [
            {"text": ground.text, "place": str(ground.place) if ground.place else None}
            for ground in found.grounds
        ],
        "differences": [
            {"what": what, "expected": expected, "actual": actual} for what, expected, actual in differs
        ],
    }


def _tell_case(told: Mapping[str, Any], number: int, count: int) -> None:
    if told["ok"]:
        if sys.stdout.isatty():
            click.echo(f"\r{click.style('✓', fg='green')} {number} of {count}\x1b[K", nl=number == count)
        return
    lead = "\r\x1b[K" if sys.stdout.isatty() else ""
    click.echo(f"{lead}{click.style('✗', fg='red')} {visible(told['case'])} ({told['place']})")
    for differs in told["differences"]:
        click.echo(click.style(f"  - {differs['what']}: {visible(differs['expected'])}", fg="red"))
        click.echo(click.style(f"  + {differs['what']}: {visible(differs['actual'])}", fg="green"))
    for ground in told["grounds"]:
        where = f"{ground['place']}: " if ground["place"] else ""
        click.echo(f"  because {where}{visible(ground['text'])}")


@command.command("check", epilog=examples("packhost policy check", "packhost policy check --json"))
@workspace_option
@json_option
@click.pass_context
def check(ctx: click.Context, workspace: Path | None, as_json: bool) -> None:
    """Look for rules that can never match, are outdone by others or name what is not there.

    The exit code is 1 when there is one. Warnings about packs and approvals are printed besides.
    """
    with supposed(workspace) as here:
        rules = here.workspace.rules
        tools = [
            KnownTool(
                entry.tool.id,
                entry.tool.spec.kind,
                entry.tool.spec.permission,
                entry.tool.spec.control,
                entry.tool.spec.input_schema,
            )
            for entry in here.configuration.catalog.entries.values()
        ]
        found = findings(rules, tools)
        said = {str(one.place) for one in found if one.place}
        others = [*here.configuration.problems, *here.configuration.warnings]
        warnings = [text for text in others if text.split(": ", 1)[0] not in said]
    if as_json:
        told = [{**asdict(one), "place": str(one.place) if one.place else None} for one in found]
        print_json({"ok": not found, "rules": len(rules), "findings": told, "warnings": warnings})
    else:
        for one in found:
            click.echo(f"{click.style('✗', fg='red')} {one.place}: {visible(one.text)}")
            click.echo(f"  {visible(one.hint)}")
        for text in warnings:
            click.echo(f"{click.style('·', fg='yellow')} {visible(text)}")
        click.echo(f"{len(rules)} rules, {len(found)} of them to be looked at")
    ctx.exit(FAILED if found else OK)


@command.command(
    "replay",
    epilog=examples("packhost policy replay --since 7d", "packhost policy replay --file new.yaml --json"),
)
@click.option(
    "--file",
    type=_FILE,
    metavar="FILE",
    help="The changed packhost.yaml; left out, the workspace's own file.",
)
@since_option("7d")
@click.option("--run", metavar="RUN", help="Only the calls of one run.")
@click.option("--level", metavar="LEVEL", help="The sessions' level; left out, the default that holds now.")
@workspace_option
@json_option
def replay_command(
    file: Path | None, since: float, run: str | None, level: str | None, workspace: Path | None, as_json: bool
) -> None:
    """Say what recorded calls would meet under a changed packhost.yaml, beside what they would meet now.

    Both answers are made afresh, with the same level, from the arguments on record: secrets and hidden
    parameters are not in them. Calls whose arguments were not admitted, or whose record was redacted, are
    counted and left out. A path is resolved as it lies on disk now.
    """
    calls = read_history(workspace, since, run)
    with present(workspace) as now, supposed(workspace, file) as then:
        found = replay(calls, now, then, level)
    if as_json:
        print_json(found.as_json())
        return
    _tell_replay(found)


def _tell_replay(found: Replay) -> None:
    rows = [
        (change.before, change.after, change.count, change.tool, change.example, change.because)
        for change in found.changes
    ]
    print_table(
        ("NOW", "THEN", "CALLS", "TOOL", "FOR EXAMPLE", "BECAUSE"), rows, empty="nothing would change"
    )
    click.echo(
        f"{found.calls} calls at level {found.level}: {found.changed} would meet something else"
        + (f"; {found.left_out} without arguments on record were left out" if found.left_out else "")
    )
