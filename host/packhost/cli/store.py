"""`packhost store`: what the store holds, backups, migrations, and letting go of what is old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.app.keeping import keeping
from packhost.cli.bars import progress_bar, size
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json
from packhost.cli.pruning import prune
from packhost.cli.run import FAILED, OK, REFUSED
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.store.backup import Manifest

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("store", short_help="Look after the store: backups, migrations, pruning.", epilog=GROUP_EPILOG)
def command() -> None:
    """Look after the store: what it holds, backups, migrations, and letting go of what is old."""


@command.command("info", epilog=examples("packhost store info", "packhost store info --json"))
@workspace_option
@json_option
def info(workspace: Path | None, as_json: bool) -> None:
    """Show what the store is and holds. It is not migrated by looking at it."""
    with keeping(workspace) as keeper:
        found = keeper.info()
    if as_json:
        print_json(found)
        return
    record = found["record"]
    newer = found["known_schema"] - found["schema"]
    print_facts(
        [
            ("Store", found["kind"]),
            ("Place", found["place"]),
            ("Engine", _engine(found)),
            ("Schema", f"{found['schema']}{f', {newer} behind: `packhost store migrate`' if newer else ''}"),
            ("Size", _sizes(found)),
            ("Held by", _holders(found)),
            ("Events", f"{record['first']} to {record['last']}" if record["last"] else "none yet"),
            ("Oldest", moment(record["oldest"])),
            ("Newest", moment(record["newest"])),
            ("Head", record["head"]),
            ("Rows", "\n".join(f"{count:>8}  {name}" for name, count in found["rows"].items())),
        ]
    )


def _engine(found: dict[str, Any]) -> str:
    if found["kind"] != "sqlite":
        return str(found.get("engine") or f"PostgreSQL {found['postgresql']}")
    bug = "it has the WAL-reset bug: open the store with nothing else" if found["wal_reset_bug"] else ""
    return f"SQLite {found['sqlite']}{f', {bug}' if bug else ''}"


def _sizes(found: dict[str, Any]) -> str:
    text = size(found["bytes"])
    if found["kind"] == "sqlite":
        text += f", write-ahead log {size(found['wal_bytes'])}, {size(found['free_bytes'])} free on the disk"
    return text


def _holders(found: dict[str, Any]) -> str:
    if "replicas" in found:
        hosts = [f"process {one['pid']} on {one['host']}" for one in found["replicas"]]
        return "\n".join(hosts) or "no host"
    return f"process {found['holder']}" if found["holder"] is not None else "no host"


@command.command("migrate", epilog=examples("packhost store migrate --dry-run", "packhost store migrate"))
@click.option("--dry-run", is_flag=True, help="Only say what is due.")
@workspace_option
@json_option
def migrate(dry_run: bool, workspace: Path | None, as_json: bool) -> None:
    """Bring the store to the schema of this packhost; a copy of it is made first.

    A host does the same when it starts. A store that a later packhost wrote is refused.
    """
    with keeping(workspace) as keeper:
        present, due = keeper.due()
        copy = None if dry_run or not due else keeper.migrate()
    names = [f"{one.version} {one.name}" for one in due]
    if as_json:
        applied = [] if dry_run else names
        print_json({"schema": present, "due": names, "applied": applied, "copy": str(copy) if copy else None})
    elif not due:
        click.echo(f"schema {present} is the newest that this packhost knows: nothing is due")
    else:
        click.echo(f"{'due' if dry_run else 'applied'}: {', '.join(names)}")
        if copy is not None:
            click.echo(f"the store as it was lies in {copy}")


@command.command(
    "backup",
    epilog=examples("packhost store backup ~/backups/project.packhost", "packhost store backup b --json"),
)
@click.argument("file", type=_FILE)
@workspace_option
@json_option
@click.pass_context
def backup(ctx: click.Context, file: Path, workspace: Path | None, as_json: bool) -> None:
    """Write the store, the host's key, what was accepted and the operator's record to FILE, mode 0600.

    A host may go on meanwhile. FILE is as secret as the state folder: it holds the key that approvals are
    bound by, and all that is on record. Archives of what was pruned are not in it. The exit code is 1 when
    the record that was copied does not verify; the backup is made all the same.
    """
    with keeping(workspace) as keeper, progress_bar("copying") as progress:
        made = keeper.backup(file, progress)
    if as_json:
        print_json(_manifest_json(made, file))
    else:
        good, bad = click.style("✓", fg="green"), click.style("✗", fg="red")
        click.echo(f"{good} {file}: {size(sum(part.size for part in made.parts))}, mode 0600, keep it secret")
        if made.fault:
            click.echo(f"{bad} the record in it does not verify: {made.fault}")
        else:
            click.echo(f"  schema {made.schema}, record up to event {made.head_id}, head {made.head_hash}")
    ctx.exit(FAILED if made.fault else OK)


def _manifest_json(made: Manifest, file: Path) -> dict[str, Any]:
    return {
        "file": str(file),
        "kind": made.kind,
        "workspace": made.root,
        "made_at": made.made_at,
        "schema": made.schema,
        "head": {"id": made.head_id, "hash": made.head_hash},
        "fault": made.fault or None,
        "bytes": sum(part.size for part in made.parts),
        "parts": [part.name for part in made.parts],
    }


@command.command(
    "restore",
    epilog=examples(
        "packhost store restore ~/backups/project.packhost",
        "packhost store restore --dry-run ~/backups/project.packhost",
    ),
)
@click.argument("file", type=_FILE)
@click.option("--dry-run", is_flag=True, help="Only say what is in the backup and whether it fits.")
@click.option("--with-consent", is_flag=True, help="Also put back what was accepted then.")
@click.option("--yes", is_flag=True, help="Ask nothing; for scripts.")
@workspace_option
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    file: Path,
    dry_run: bool,
    with_consent: bool,
    yes: bool,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Put a backup in the place of the present state, which is kept aside.

    Refused while a host runs. The record is verified first. Runs that were running are interrupted, approvals
    that were open are cancelled, and grants and tokens that were revoked since stay revoked. What is accepted
    now stays accepted, unless --with-consent is said. That it was restored is on record.
    """
    refuse_agents("packhost store restore")
    with keeping(workspace) as keeper:
        found = keeper.check(file)
        if dry_run:
            _tell_backup(found, file, as_json)
            return
        if not yes:
            with Terminal("restoring") as terminal:
                terminal.write(f"The backup of {moment(found.made_at)} would replace the present store.\n")
                agreed = terminal.confirm("Restore it?")
            if not agreed:
                click.echo("nothing was replaced")
                ctx.exit(REFUSED)
        with progress_bar("restoring") as progress:
            done = keeper.restore(file, with_consent=with_consent, progress=progress)
    if as_json:
        facts = {"aside": str(done.aside), "interrupted": list(done.interrupted), "withdrawn": done.withdrawn}
        print_json({**_manifest_json(done.manifest, file), **facts, "present_unread": done.unread})
        return
    click.echo(f"{click.style('✓', fg='green')} restored; what was there lies in {done.aside}")
    for id in done.interrupted:
        click.echo(f"  run {id} was running then: it is interrupted, `packhost runs resume {id}`")
    for name, count in done.withdrawn.items():
        if count:
            click.echo(f"  {count} {name} that no longer hold were taken back")
    if done.unread:
        mark = click.style("·", fg="yellow")
        click.echo(
            f"{mark} the former store could not be read: look at `packhost grants list` and `tokens list`"
        )


def _tell_backup(found: Manifest, file: Path, as_json: bool) -> None:
    if as_json:
        print_json(_manifest_json(found, file))
        return
    print_facts(
        [
            ("Made", moment(found.made_at)),
            ("Workspace", found.root),
            ("Store", found.kind),
            ("Schema", found.schema),
            ("Record", f"up to event {found.head_id}, head {found.head_hash}"),
            ("Fault", found.fault),
            ("Holds", "\n".join(f"{size(part.size):>12}  {part.name}" for part in found.parts)),
        ]
    )


command.add_command(prune)
