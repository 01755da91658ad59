"""`packhost init`: a first `packhost.yaml`, accepted at once since packhost wrote it itself."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import click

from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.terminal import Terminal, person_at_hand
from packhost.errors import ConfigInvalid
from packhost.workspace.consent import seen_digest
from packhost.workspace.root import CONFIG_FILE, Root
from packhost.workspace.template import init_settings_text

_FOLDER = "src"


@click.command(
    "init",
    short_help="Write a first packhost.yaml here, and accept it.",
    epilog=examples("packhost init", "packhost init --write docs", "packhost init --no-write"),
)
@click.option(
    "--write",
    "folder",
    metavar="FOLDER",
    help=f"Let agents write below this folder, asked first; `{_FOLDER}`.",
)
@click.option("--no-write", is_flag=True, help="Let agents read only.")
@workspace_option
@json_option
def command(folder: str | None, no_write: bool, workspace: Path | None, as_json: bool) -> None:
    """Write a first packhost.yaml into this folder, or that of -w, and accept it.

    Offers writes below a folder, each asked first; without a terminal it takes that offer. A file that
    is there already is never touched.
    """
    if no_write and folder is not None:
        raise click.UsageError("`--write` and `--no-write` exclude each other")
    with Root(workspace or Path.cwd()) as root:
        path = root.path / CONFIG_FILE
        _refuse_existing(path)
        chosen = "" if no_write else folder if folder is not None else _offer()
        text = init_settings_text(_inside(chosen) if chosen else None)
        _write_new(path, text)
    request(path.parent, "accept.apply", digest=seen_digest(text.encode(), {}), channel="init")
    if as_json:
        print_json({"path": str(path), "writes": _glob(chosen) if chosen else None, "accepted": True})
        return
    click.echo(f"wrote {path} and accepted it")
    click.echo(f"writes: {f'`{_glob(chosen)}`, each asked first' if chosen else 'none'}")
    click.echo("next: `packhost tools list`, and `packhost connect claude-code --print`")


def _offer() -> str:
    """The folder that the person chooses; empty for none."""
    if not person_at_hand():
        return _FOLDER
    with Terminal("init") as terminal:
        answer = terminal.line(
            f"Folder that agents may write in, each write asked first [{_FOLDER}; - for none]: "
        )
    if answer is None or answer == "-":
        return ""
    return answer or _FOLDER


def _inside(folder: str) -> str:
    """The folder in its one spelling; raises `ConfigInvalid` for what is no folder inside the root."""
    path = PurePosixPath(folder)
    if path.is_absolute() or ".." in path.parts or any(mark in folder for mark in "*?[]{}\\\0\n"):
        raise ConfigInvalid(f"`{folder}` is not a folder inside the workspace", hint="name one such as `src`")
    return str(path)


def _glob(folder: str) -> str:
    """What is allowed when agents may write below a folder."""
    path = _inside(folder)
    return "**" if path == "." else f"{path}/**"


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigInvalid(
            f"`{path}` is there already, and init never writes over it",
            hint="edit it, then look at what it asks for with `packhost accept`",
        )


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(path)
    except OSError as error:
        raise ConfigInvalid(
            f"`{path}` cannot be written: {(error.strerror or 'it failed').lower()}"
        ) from None
