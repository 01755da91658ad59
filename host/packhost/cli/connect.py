"""`packhost connect`: make a client start this host for this workspace, and alone if that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.terminal import refuse_agents
from packhost.clients import claude_code, connecting, entries, keeping
from packhost.clients.forms import CLIENTS, TITLES, Client
from packhost.clients.keeping import Change, Undone
from packhost.clients.launch import Launch, launch
from packhost.errors import NotFound
from packhost.workspace.root import Root, find_root


@click.group("connect", short_help="Connect a client to this workspace.", epilog=GROUP_EPILOG)
def command() -> None:
    """Print what connects a client to this workspace, or write it into the client's own file."""


_OPTIONS: Final = (
    click.option(
        "--print", "printing", is_flag=True, help="Print it and touch nothing; so without `--write`."
    ),
    click.option("--write", is_flag=True, help="Write it into the client's file, beside what is there."),
    click.option("--user", is_flag=True, help="In your own file, for every project, not in the project's."),
    click.option(
        "--exclusive",
        is_flag=True,
        help="Also deny the client its own file and shell tools, where it can be told.",
    ),
    click.option("--undo", is_flag=True, help="Take back what `--write` did, byte for byte."),
    click.option(
        "--force", is_flag=True, help="With --undo: also where a file was edited since; it is kept."
    ),
    workspace_option,
    json_option,
)


def _of(client: Client) -> click.Command:
    def run(
        printing: bool,
        write: bool,
        user: bool,
        exclusive: bool,
        undo: bool,
        force: bool,
        workspace: Path | None,
        as_json: bool,
    ) -> None:
        if printing + write + undo > 1:
            raise click.UsageError("`--print`, `--write` and `--undo` exclude each other")
        if force and not undo:
            raise click.UsageError("`--force` goes with `--undo`")
        if exclusive and not (write or undo):
            raise click.UsageError("`--exclusive` goes with `--write`")
        if undo:
            _undo(client, workspace, force, as_json)
        elif write:
            _write(client, workspace, user, exclusive, as_json)
        else:
            _print(client, launch(find_root(workspace or Path.cwd())), workspace, user, as_json)

    run.__doc__ = f"Connect {TITLES[client]}: print what does, or write it."
    made: Callable[..., Any] = run
    for option in reversed(_OPTIONS):
        made = option(made)
    lines = (f"packhost connect {client}", f"packhost connect {client} --write --exclusive")
    return click.command(client, epilog=examples(*lines))(made)


for _client in CLIENTS:
    command.add_command(_of(_client))


def _target(client: Client, root: Path, user: bool) -> connecting.Target:
    return connecting.target(client, root, Path.home(), user=user)


def _print(client: Client, found: Launch, workspace: Path | None, user: bool, as_json: bool) -> None:
    root = find_root(workspace or Path.cwd())
    where = _target(client, root, user)
    shown = str(where.path.relative_to(root)) if where.project else str(where.path)
    link = _link(client, found)
    if as_json:
        told: dict[str, Any] = {"file": shown, "config": connecting.block(client, found)}
        told |= {"command": claude_code.add_command(found)} if client == "claude-code" else {}
        print_json(told | ({"link": link} if link else {}))
        return
    if client == "claude-code" and not user:
        click.echo("For yourself, in the workspace's folder:\n")
        click.echo(f"  {claude_code.add_command(found)}\n")
        click.echo(f"Or for everyone who has the project, in its {shown}:\n")
    else:
        click.echo(f"In the project's {shown}:\n" if where.project else f"In {shown}:\n")
    click.echo(connecting.as_text(client, found))
    if link:
        click.echo(f"Or open this link:\n\n  {link}\n")
    _say_variables(found)
    click.echo(f"`packhost connect {client} --write` writes it for you, and `--undo` takes it back.")
    if client == "claude-code":
        click.echo("Then `/mcp` in Claude Code shows packhost and its tools.")


def _link(client: Client, found: Launch) -> str:
    links = {"cursor": entries.cursor_link, "vscode": entries.vscode_link}
    return links[client](found) if client in links else ""


def _say_variables(found: Launch) -> None:
    if found.variables:
        names = ", ".join(found.variables)
        click.echo(f"Keys stay where they are: start the client with {names} in its environment.\n")


def _write(client: Client, workspace: Path | None, user: bool, exclusive: bool, as_json: bool) -> None:
    refuse_agents(f"packhost connect {client} --write")
    with Root(find_root(workspace or Path.cwd())) as root:
        where = _target(client, root.path, user)
        found = launch(root.path)
        change = connecting.connect(where, root.path, found)
        files = [change] if change is not None else []
        said = ""
        if exclusive:
            rules, said = connecting.exclusive(where, root.path, Path.home())
            files = [connecting.codex_alone(change, where)] if client == "codex" else [*files, *rules]
        files = [one for one in files if not one.path.exists() or one.path.read_bytes() != one.content]
        kept = keeping.apply_changes(root.state, _what(client), files) if files else None
    _say_written(client, kept, said, found, as_json)


def _say_written(client: Client, kept: Change | None, said: str, found: Launch, as_json: bool) -> None:
    written = [str(one.path) for one in kept.files] if kept is not None else []
    if as_json:
        print_json({"written": written, "rules": said})
        return
    for path in written:
        click.echo(f"wrote {path}")
    if kept is None:
        click.echo(f"{TITLES[client]} is connected already")
    if said:
        click.echo(said)
    _say_variables(found)
    if kept is not None:
        click.echo(f"take it back: packhost connect {client} --undo")


def _undo(client: Client, workspace: Path | None, force: bool, as_json: bool) -> None:
    refuse_agents(f"packhost connect {client} --undo")
    with Root(find_root(workspace or Path.cwd())) as root:
        change = keeping.latest(root.state, _what(client))
        if change is None:
            raise NotFound(
                f"packhost wrote nothing for {TITLES[client]} here",
                hint=f"`packhost connect {client} --write` does",
            )
        rewritten = [one.path for one in change.files if one.path.name in keeping.REWRITTEN]
        say_undone(keeping.undo(change, force=force, mending=rewritten), as_json)


def say_undone(done: Sequence[Undone], as_json: bool) -> None:
    """What taking a change back did."""
    if as_json:
        print_json({"undone": [{"path": str(one.path), "did": one.did} for one in done]})
        return
    for one in done:
        click.echo(f"{one.path}: {one.did}")
    click.echo("taken back; restart the clients that were connected")


def _what(client: Client) -> str:
    return f"connect {client}"
