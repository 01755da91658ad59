"""`packhost adopt`: the MCP servers that a client has, put behind packhost in one step, and taken back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import click

from packhost.cli.adopted import say_changes, say_found, say_proposed
from packhost.cli.bars import progress_bar
from packhost.cli.connect import say_undone
from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import OK, REFUSED
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.clients import adopting, keeping
from packhost.clients.adopting import Candidate, Plan
from packhost.clients.forms import ClientFile
from packhost.clients.keeping import Change
from packhost.clients.reading import PATIENCE, read_all
from packhost.errors import NotFound, PackhostError
from packhost.workspace.consent import ACCEPTED_FILE, seen_digest
from packhost.workspace.files import read_file
from packhost.workspace.lock import LOCK_FILE
from packhost.workspace.observed import Observed
from packhost.workspace.root import CONFIG_FILE, Root, find_root
from packhost.workspace.settings import default_settings
from packhost.workspace.sources import digest_of
from packhost.workspace.workspace import Workspace

_WHAT = "adopt"


@click.command(
    "adopt",
    short_help="Put the MCP servers that a client has behind packhost.",
    epilog=examples(
        "packhost adopt .mcp.json",
        "packhost adopt ~/.codex/config.toml --dry-run",
        "packhost adopt --yes",
        "packhost adopt --undo",
    ),
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--yes", is_flag=True, help="Ask nothing. What raises doubts is then withheld, not accepted.")
@click.option(
    "--dry-run", is_flag=True, help="Say what would be started and written; start and write nothing."
)
@click.option("--undo", is_flag=True, help="Take the last adoption back, byte for byte.")
@click.option("--force", is_flag=True, help="With --undo: also where a file was edited since; it is kept.")
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=PATIENCE, help="Seconds for a server to answer."
)
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    yes: bool,
    dry_run: bool,
    undo: bool,
    force: bool,
    timeout: float,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Put every server of a client's FILE behind packhost, which becomes the only one in it.

    Starts each as its client would, reads its tools, proposes what they may do, writes packhost.yaml and a
    manifest a server, and accepts them. Without a FILE, those in this folder are taken. A server that
    cannot be read stays as it was. Secrets stay out of what is written.
    """
    if force and not undo:
        raise click.UsageError("`--force` goes with `--undo`")
    refuse_agents("packhost adopt")
    with Root(find_root(workspace or Path.cwd())) as root:
        if undo:
            _undo(root, force, as_json)
            return
        opened = _open(files, root.path)
        settings, existing = _standing(root)
        found = adopting.candidates(opened, root.path, os.environ, Path.home(), settings)
        if dry_run or not any(one.server for one in found):
            _end(ctx, found, as_json, dry_run)
        if not yes:
            with Terminal("adopting") as terminal:
                say_found(found, lambda line: terminal.write(f"{line}\n"))
                if not terminal.confirm("Start these as your client would, and read their tools?"):
                    _refused(ctx, found, as_json)
        elif not as_json:
            say_found(found, click.echo)
        _read(found, root.path, timeout)
        adopting.propose_all(found, root.path, _packs(root), trusting=not yes)
        if not any(one.adopted for one in found):
            _end(ctx, found, as_json, dry_run)
        planned = adopting.plan(found, root.path, root.path / CONFIG_FILE, existing)
        change = _carry_out(ctx, root, found, planned, yes, as_json)
    if as_json:
        print_json({**_told(found), "written": [str(one.path) for one in change.files], "accepted": True})
    else:
        say_changes(found, planned, change)


def _open(files: Sequence[Path], root: Path) -> list[ClientFile]:
    chosen = list(files) or adopting.project_files(root)
    if not chosen:
        names = ", ".join(f"`{name}`" for name in adopting.PROJECT_FILES)
        raise NotFound(
            f"no client's file is in `{root}`",
            hint=f"name one; looked for {names}, where clients keep servers",
        )
    opened: dict[Path, ClientFile] = {}
    for path in chosen:
        file = ClientFile(path, root)
        opened.setdefault(file.path, file)
    for file in opened.values():
        keeping.refuse_read_only(file.path)
    return list(opened.values())


def _standing(root: Root) -> tuple[Any, bytes | None]:
    """The settings as accepted, and the file; one that waits to be accepted is not added to unseen."""
    existing = read_file(root.descriptor, CONFIG_FILE)
    if existing is None:
        return default_settings(), None
    waits = request(root.path, "accept.changes")
    if waits["changes"] or waits["accepted_at"] is None:
        raise PackhostError(
            "packhost.yaml waits to be accepted, and adopting would accept it unseen",
            code="NOT_ACCEPTED",
            hint="look at it with `packhost accept` first",
        )
    return Workspace(root).file, existing


def _packs(root: Root) -> list[str]:
    return [pack.id for pack in Workspace(root).enabled()]


def _read(found: Sequence[Candidate], folder: Path, patience: float) -> None:
    wanted = [one for one in found if one.server is not None and one.same_as is None]
    servers = [one.server for one in wanted if one.server is not None]
    with progress_bar("starting servers") as told:
        read = anyio.run(lambda: read_all(servers, folder, patience=patience, told=told))
    for one, result in zip(wanted, read, strict=True):
        one.read = result


def _carry_out(
    ctx: click.Context, root: Root, found: Sequence[Candidate], planned: Plan, yes: bool, as_json: bool
) -> Change:
    """Ask, write, and accept exactly what was written; where that fails, nothing has changed."""
    operator, signed = request(root.path, "operator.show"), None
    digests = {path: digest_of(dict(sources)) for path, sources in planned.packs.items()}
    kept = Workspace(root)
    digests |= {
        pack.path: kept.consent.packs[pack.path].sha256
        for pack in kept.file.packs
        if pack.path and kept.consent
    }
    seen = seen_digest(planned.settings, digests)
    if not yes or operator["state"] != "none":
        with Terminal("adopting") as terminal:
            say_proposed(found, lambda line: terminal.write(f"{line}\n"))
            if not yes and not terminal.confirm("Adopt them like this?"):
                _refused(ctx, found, as_json)
            pen = take_pen(terminal, operator)
            signed = pen.consent(seen) if pen is not None else None
    elif not as_json:
        say_proposed(found, click.echo)
    before = {name: _bytes(path) for name, path in _written_by_consent(root).items()}
    change = keeping.apply_changes(root.state, _WHAT, planned.files)
    try:
        params: dict[str, Any] = {"digest": seen, "channel": _WHAT, "signed": signed}
        request(root.path, "accept.apply", **params)
    except BaseException:
        keeping.undo(change, force=True)
        raise
    for name, path in _written_by_consent(root).items():
        change = keeping.extend(change, path, before[name])
    observed = Observed(root.state)
    for pack, pins in planned.undecided.items():
        observed.remember(pack, pins)
    return change


def _written_by_consent(root: Root) -> Mapping[str, Path]:
    return {"lock": root.path / LOCK_FILE, "consent": root.state / ACCEPTED_FILE}


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _undo(root: Root, force: bool, as_json: bool) -> None:
    change = keeping.latest(root.state, _WHAT)
    if change is None:
        raise NotFound("nothing was adopted here", hint="`packhost adopt FILE` adopts")
    mending = [one.path for one in change.files if one.path.name in keeping.REWRITTEN]
    done = keeping.undo(change, force=force, mending=mending)
    observed = Observed(root.state)
    for one in change.files:
        if one.path.parent.parent == root.path / adopting.HOME:
            observed.forget(one.path.parent.name)
    say_undone(done, as_json)


def _told(found: Sequence[Candidate]) -> dict[str, Any]:
    return {"servers": [adopting.as_json(one) for one in found]}


def _end(ctx: click.Context, found: Sequence[Candidate], as_json: bool, dry_run: bool) -> None:
    """Nothing is written: because nobody wanted that, or because there is nothing to adopt."""
    if as_json:
        print_json({**_told(found), "written": [], "accepted": False})
    else:
        (say_proposed if any(one.read for one in found) else say_found)(found, click.echo)
        if not any(one.server for one in found):
            click.echo(
                "nothing to adopt: packhost is the only server" if not found else "nothing was adopted"
            )
    failed = found and not dry_run
    ctx.exit(1 if failed else OK)


def _refused(ctx: click.Context, found: Sequence[Candidate], as_json: bool) -> None:
    if as_json:
        print_json({**_told(found), "written": [], "accepted": False})
    else:
        click.echo("nothing was written")
    ctx.exit(REFUSED)
