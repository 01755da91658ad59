"""`packhost store prune`: let go of what is old, with a copy of what leaves the record."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
import click

from packhost.cli.audit import key_option
from packhost.cli.bars import progress_bar
from packhost.cli.host import with_control
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import REFUSED
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.cli.times import DurationType, span
from packhost.control.base import Control
from packhost.errors import InvalidInput
from packhost.store.seals import ExportSeal
from packhost.workspace.settings import SHORTEST_KEPT

_FILE = click.Path(dir_okay=False, path_type=Path)
_PAGE: Final = 500
_NO_EVENTS: Final = {"first": 0, "last": 0, "last_hash": ""}


@click.command(
    "prune",
    epilog=examples(
        "packhost store prune --older-than 90d --dry-run",
        "packhost store prune --older-than 90d --export pruned.jsonl --hmac-key env:AUDIT_KEY",
        "packhost store prune --older-than 90d --without-export --yes",
    ),
)
@click.option(
    "--older-than",
    "age",
    type=DurationType(),
    required=True,
    metavar="SPAN",
    help="How old is old, as `90d`.",
)
@click.option(
    "--runs-older-than", "runs_age", type=DurationType(), metavar="SPAN", help="Another age for ended runs."
)
@click.option("--export", type=_FILE, metavar="FILE", help="Write the events that go to a new FILE first.")
@click.option("--without-export", is_flag=True, help="Let the events go without a copy of them.")
@click.option("--reason", default="", help="Why; it stays on record.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@key_option
@click.option("--yes", is_flag=True, help="Ask nothing; for scripts.")
@workspace_option
@json_option
@click.pass_context
def prune(
    ctx: click.Context,
    age: float,
    runs_age: float | None,
    export: Path | None,
    without_export: bool,
    reason: str,
    dry_run: bool,
    key: bytes | None,
    yes: bool,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Remove what is old: events from the beginning of the record on, and runs that ended, with their calls.

    Events of a run that has not ended stay, and all after them. What goes is on record with its last hash, so
    that `packhost audit verify` proves the rest; with the file of --export it proves the whole:
    `packhost audit verify --export FILE --join`. Keep that file where this machine cannot change it.
    Approvals and grants go once nothing can use or names them, sessions once they have no run left. Where
    there is an operator, it takes the passphrase.
    """
    refuse_agents("packhost store prune")
    if export is not None and without_export:
        raise InvalidInput("`--export` and `--without-export` exclude each other", hint="say one of the two")
    if age < SHORTEST_KEPT or (runs_age is not None and runs_age < SHORTEST_KEPT):
        raise InvalidInput(
            "the record is kept for an hour at least", hint="name a longer time, such as `90d`"
        )
    wanted: dict[str, Any] = {"events": age, "runs": age if runs_age is None else runs_age}

    async def work(control: Control) -> dict[str, Any] | None:
        plan = await control.request("store.prune", {**wanted, "look": True})
        going = plan["events"]["count"] if plan["events"] else 0
        if dry_run or plan["empty"]:
            return {"plan": plan, "done": None}
        if going and export is None and not without_export:
            raise InvalidInput(
                f"{going} events would be gone for good, without a copy",
                hint="name a file with `--export FILE`, or say `--without-export`",
            )
        if not yes and not _agreed(plan):
            return None
        exported = None
        if going and export is not None:
            exported = await _export(control, plan["events"], export, key)
        events = plan["events"] if going else {**_NO_EVENTS, **(plan["events"] or {})}
        signed = await _signature(control, events, exported)
        more = {"reason": reason, "exported": exported, "without_export": without_export, "signed": signed}
        last = plan["events"]["last"] if going else 0
        done = await _watched(control, {**wanted, **more, "last": last}, plan)
        return {"plan": plan, "done": {**done, "export_sha256": exported}}

    found = with_control(workspace, work)
    if found is None:
        click.echo("nothing was removed")
        ctx.exit(REFUSED)
    _tell_pruned(found["plan"], found["done"], export, as_json, wanted)


async def _signature(control: Control, events: dict[str, Any], exported: str | None) -> dict[str, Any] | None:
    """The operator's, where there is one: asks for the passphrase."""
    operator = await control.request("operator.show", {})
    if operator["state"] == "none":
        return None
    with Terminal("pruning") as terminal:
        pen = take_pen(terminal, operator)
    return pen.pruning(events, exported) if pen is not None else None


def _agreed(plan: dict[str, Any]) -> bool:
    with Terminal("pruning") as terminal:
        terminal.write("This would be removed for good:\n")
        for line in _planned(plan):
            terminal.write(f"  {line}\n")
        return terminal.confirm("Remove it?")


def _planned(plan: dict[str, Any]) -> Iterator[str]:
    events = plan["events"]
    if plan["unfinished"]:
        yield f"{plan['unfinished']} events that an earlier pruning did not come to"
    if events and events["count"]:
        yield f"{events['count']} events, {events['first']} to {events['last']}"
    if events and events["held_by"]:
        yield f"no later events: {events['held_by']}"
    yield from (f"{count} {name}" for name, count in (plan["rows"] or {}).items() if count)


async def _export(control: Control, events: dict[str, Any], file: Path, key: bytes | None) -> str:
    """Write the events that go to a file that is on disk when this returns; its SHA-256."""
    cursor = events["first"] - 1
    with _Export(file, key) as export, progress_bar("exporting") as progress:
        while cursor < events["last"]:
            page = {"after": cursor, "limit": min(_PAGE, events["last"] - cursor), "raw": True}
            found = await control.request("audit.export", page)
            for line in found["lines"]:
                export.add(line)
            cursor = found["next"] or events["last"]
            progress(cursor - events["first"], events["count"])
    return export.sha256


class _Export:
    """A new file of exported events, mode 0600; ended well it is on disk, and signed where there is a key."""

    def __init__(self, file: Path, key: bytes | None) -> None:
        self._file = file
        self._seal = ExportSeal(key) if key else None
        self._sha = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of what was written."""
        return self._sha.hexdigest()

    def __enter__(self) -> Self:
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            said = error.strerror or "it failed"
            raise InvalidInput(f"`{self._file}` cannot be made: {said}", hint="name a new file") from None
        self._open = os.fdopen(descriptor, "wb")
        return self

    def add(self, line: str) -> None:
        """One event."""
        if self._seal is not None:
            self._seal.add(line)
        self._write(line)

    def _write(self, line: str) -> None:
        data = f"{line}\n".encode()
        self._sha.update(data)
        self._open.write(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            if error is None:
                if self._seal is not None:
                    self._write(self._seal.line())
                self._open.flush()
                os.fsync(self._open.fileno())


async def _watched(control: Control, params: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Prune, and show how far it has come: the first event that is kept moves on."""
    done: dict[str, Any] = {}
    events = plan["events"] or {"first": 1, "count": 0}
    with progress_bar("pruning") as progress:
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                while True:
                    await anyio.sleep(0.2)
                    first = (await control.request("store.kept", {}))["first"]
                    progress(first - events["first"], events["count"])

            tasks.start_soon(look)
            done |= await control.request("store.prune", params)
            tasks.cancel_scope.cancel()
    return done


def _tell_pruned(
    plan: dict[str, Any],
    done: dict[str, Any] | None,
    export: Path | None,
    as_json: bool,
    wanted: dict[str, Any],
) -> None:
    if as_json:
        print_json({"plan": plan, "pruned": done, "at": time.time()})
    elif done is None:
        lines = list(_planned(plan))
        head = "would go" if not plan["empty"] else f"nothing is older than {span(wanted['events'])}"
        click.echo("\n".join([head, *(f"  {line}" for line in lines)]))
    else:
        rows = [f"{count} {name}" for name, count in done["rows"].items() if count]
        gone = ", ".join([f"{done['events']} events", *rows])
        click.echo(f"{click.style('✓', fg='green')} gone: {gone}")
        if done["export_sha256"]:
            click.echo(f"  the events are in {export}, sha256 {done['export_sha256']}")
            click.echo(f"  with the rest they verify by `packhost audit verify --export {export} --join`")
