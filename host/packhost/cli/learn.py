"""`packhost learn`: the narrowest packhost.yaml that covers what really happened, as a diff."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from packhost.app.configuring import present, supposed
from packhost.cli.history import read_history, since_option
from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.replaying import Replay, replay
from packhost.cli.terminal import refuse_agents
from packhost.errors import ConfigInvalid
from packhost.gate.display import visible
from packhost.gate.learning import Lesson, learn
from packhost.rules.globs import tool_matches
from packhost.rules.policy import Rule
from packhost.store.ops.history import RecordedCall
from packhost.workspace.files import read_file, write_file
from packhost.workspace.rewriting import Rewriter
from packhost.workspace.root import CONFIG_FILE, Root, find_root

REASON = "never called in what was learned from"


@click.command(
    "learn",
    short_help="Propose the narrowest packhost.yaml for what really happened.",
    epilog=examples("packhost learn", "packhost learn --since 90d --json", "packhost learn --write"),
)
@since_option("30d")
@click.option("--run", metavar="RUN", help="Only the calls of one run.")
@click.option("--write", is_flag=True, help="Write it; what narrows holds at once, what widens waits.")
@workspace_option
@json_option
def command(since: float, run: str | None, write: bool, workspace: Path | None, as_json: bool) -> None:
    """Propose the narrowest scopes and rules that cover the calls on record, as a diff of packhost.yaml.

    Only calls that ran teach something. A folder of which three files or more were used is taken whole, and
    so is one that was searched or listed. Tools that were never called are denied, packs that were never used
    are named. What the proposal would change for the very calls that it was learned from is said.
    """
    if write:
        refuse_agents("packhost learn --write")
    calls = read_history(workspace, since, run)
    with present(workspace) as now:
        lesson = learn(calls, now.configuration.catalog, now.root.descriptor)
        before = _current(now.root)
        denied = [rule for rule in now.workspace.rules if rule.decide == "deny" and _always(rule)]
        after = _proposal(before, lesson, denied) if lesson.calls else before
        changed = _replayed(calls, workspace, after) if after != before else None
    if write and after != before:
        _write(workspace, before, after)
    told = _json(lesson, before, after, changed, written=write and after != before)
    if as_json:
        print_json(told)
    else:
        _tell(told, lesson)
        _tell_waiting(workspace, told)


def _current(root: Root) -> str:
    source = read_file(root.descriptor, CONFIG_FILE)
    return source.decode("utf-8") if source is not None else ""


def _always(rule: Rule) -> bool:
    """Whether the rule asks of nothing but the tool."""
    return not rule.arguments and rule.principal is None and rule.kind is None and rule.permission is None


def _speaks_of(rule: Rule, tool: str) -> bool:
    known = rule.tool is None or tool_matches(rule.tool, tool)
    return known and rule.pack in (None, tool.partition(":")[0])


def _proposal(before: str, lesson: Lesson, denied: Sequence[Rule]) -> str:
    rewriter = Rewriter(before)
    rewriter.set_list("bound", lesson.bound)
    rewriter.set_pack_scopes(lesson.packs)
    left = [tool for tool in lesson.unused_tools if not any(_speaks_of(rule, tool) for rule in denied)]
    rewriter.add_rules([{"match": {"tool": tool}, "decide": "deny", "reason": REASON} for tool in left])
    return rewriter.text


def _replayed(calls: list[RecordedCall], workspace: Path | None, after: str) -> Replay:
    """What the proposal would change for the calls that ran."""
    ran = [call for call in calls if call.met != "refused"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(after)
        file.flush()
        with present(workspace) as now, supposed(workspace, Path(file.name)) as then:
            return replay(ran, now, then, None)


def _write(workspace: Path | None, before: str, after: str) -> None:
    with Root(find_root(workspace or Path.cwd())) as root:
        if _current(root) != before:
            raise ConfigInvalid("packhost.yaml has changed meanwhile", hint="run `packhost learn` again")
        write_file(root.descriptor, CONFIG_FILE, after.encode())


def _json(
    lesson: Lesson, before: str, after: str, changed: Replay | None, *, written: bool
) -> dict[str, Any]:
    return {
        "calls": lesson.calls,
        "left_out": lesson.left_out,
        "used": list(lesson.used),
        "unused_tools": list(lesson.unused_tools),
        "unused_packs": list(lesson.unused_packs),
        "bound": list(lesson.bound),
        "packs": {pack: list(lines) for pack, lines in lesson.packs.items()},
        "diff": "".join(_diff(before, after)),
        "would_change": changed.as_json()["changes"] if changed else [],
        "written": written,
    }


def _diff(before: str, after: str) -> Iterator[str]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    yield from difflib.unified_diff(old, new, CONFIG_FILE, f"{CONFIG_FILE} (learned)")


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _tell(told: dict[str, Any], lesson: Lesson) -> None:
    if not lesson.calls:
        click.echo("there is nothing to learn from: no call ran in that time")
        return
    click.echo(f"{lesson.calls} calls of {len(lesson.used)} tools")
    if lesson.left_out:
        click.echo(f"{lesson.left_out} calls of tools that are no longer on offer were left out")
    for pack in lesson.unused_packs:
        click.echo(f"the pack `{pack}` was never used: take it out of `packs`")
    click.echo()
    for number, line in enumerate(told["diff"].splitlines()):
        shown = visible(line)
        click.echo(shown if number < 2 else click.style(shown, fg=_COLOURS.get(line[:1])))
    if not told["diff"]:
        click.echo("packhost.yaml is as narrow already")
    for change in told["would_change"]:
        click.echo(
            f"{click.style('·', fg='yellow')} {change['count']} calls of {change['tool']} that ran would "
            f"meet `{change['after']}`, not `{change['before']}`: {visible(change['because'])}"
        )


def _tell_waiting(workspace: Path | None, told: dict[str, Any]) -> None:
    if told["written"]:
        waiting = request(workspace, "status")["pending"]
        click.echo("written; what narrows holds now")
        for change in waiting:
            click.echo(f"waits for `packhost accept`: {visible(change['text'])}")
    elif told["diff"]:
        click.echo("nothing was written: `--write` does it")
