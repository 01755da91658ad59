"""`packhost audit`: prove that the record is whole, print it, and take a payload out of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from packhost.cli.host import request, with_control
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json
from packhost.cli.run import FAILED, OK, REFUSED
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.control.base import Control
from packhost.errors import ConfigInvalid, InvalidInput
from packhost.gate.display import shorten, visible
from packhost.store.seals import ExportSeal, anchor_line, check_export, read_anchors
from packhost.workspace.secrets import Secrets

Command = TypeVar("Command", bound=Callable[..., Any])
_PAGE = 500
_SHORTEST_KEY = 16
_FILE = click.Path(dir_okay=False, path_type=Path)


def _key(ctx: click.Context, _: click.Parameter, reference: str | None) -> bytes | None:
    """The key that a reference leads to."""
    if reference is None:
        return None
    if reference.partition(":")[0] not in ("env", "file"):
        raise InvalidInput(
            "a key is named by `env:NAME` or `file:PATH`, never given itself", hint="keep it elsewhere"
        )
    value = Secrets({"key": reference}, base=Path.cwd()).resolve("key")
    if len(value) < _SHORTEST_KEY:
        raise ConfigInvalid(
            f"the key is shorter than {_SHORTEST_KEY} characters", hint="make one with `openssl rand -hex 32`"
        )
    return value.encode()


key_option = click.option(
    "--hmac-key",
    "key",
    metavar="REFERENCE",
    callback=_key,
    help="A key that is kept elsewhere: `env:NAME` or `file:PATH`.",
)


@click.group("audit", short_help="Prove and print the record.", epilog=GROUP_EPILOG)
def command() -> None:
    """Prove and print the record: a chain of events, each bound to the one before by its hash."""


@command.command("head", epilog=examples("packhost audit head", "packhost audit head --json"))
@workspace_option
@json_option
def head(workspace: Path | None, as_json: bool) -> None:
    """Show the end of the chain: kept elsewhere, it proves later that nothing was cut off."""
    found = request(workspace, "audit.head")
    if as_json:
        print_json(found)
    else:
        print_facts(
            [
                ("Event", found["id"] or "none yet"),
                ("Hash", found["hash"]),
                ("Time", moment(found["time"])),
                ("Events", str(found["count"])),
            ]
        )


@command.command(
    "verify",
    epilog=examples(
        "packhost audit verify",
        "packhost audit verify --anchor /mnt/safe/anchors.jsonl --hmac-key env:AUDIT_KEY",
        "packhost audit verify --export record.jsonl --hmac-key env:AUDIT_KEY",
    ),
)
@click.option(
    "--head", "hashes", metavar="HASH", multiple=True, help="A head that the chain must go through."
)
@click.option(
    "--anchor", type=_FILE, metavar="FILE", help="A file of anchors that the chain must go through."
)
@click.option(
    "--export", "exported", type=_FILE, metavar="FILE", help="Look at an export, not at this record."
)
@key_option
@workspace_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    hashes: tuple[str, ...],
    anchor: Path | None,
    exported: Path | None,
    key: bytes | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Walk the whole chain; the exit code is 1 when a link does not hold.

    A chain cannot show that its end was cut off, and whoever may write the store may write it anew: a head or
    a file of anchors that is kept elsewhere proves that neither was done since. With a key each anchor, or
    the export's signature, must be made with it.
    """
    if exported is not None:
        ctx.exit(_verify_export(exported, key, as_json))
    anchors: list[dict[str, Any]] = [{"hash": one} for one in hashes]
    if anchor is not None:
        text = _read(anchor)
        anchors += [{"hash": one.hash, "id": one.id} for one in read_anchors(text, str(anchor), key)]
        if not anchors:
            raise InvalidInput(f"`{anchor}` holds no anchor", hint="`packhost audit anchor` writes one")
    found = request(workspace, "audit.verify", anchors=anchors)
    if as_json:
        print_json(found)
    else:
        _tell_verified(found)
    ctx.exit(OK if found["ok"] else FAILED)


def _tell_verified(found: dict[str, Any]) -> None:
    good, bad = click.style("✓", fg="green"), click.style("✗", fg="red")
    if found["first_bad"] is not None:
        click.echo(
            f"{bad} the first bad link is event {found['first_bad']} of {found['events']}: {found['reason']}"
        )
    else:
        gone = f", {found['redacted']} payloads redacted on record" if found["redacted"] else ""
        click.echo(f"{good} {found['events']} events, every link holds{gone}")
        click.echo(f"  head {found['head']}")
    for text in found["missed"]:
        click.echo(f"{bad} {text}")
    if found["anchors"] and not found["missed"]:
        click.echo(f"{good} it goes through {found['anchors']} of {found['anchors']} heads that were kept")


def _verify_export(file: Path, key: bytes | None, as_json: bool) -> int:
    report = check_export(_read(file).splitlines(), key)
    ok = not report.broken and report.signed is not False
    if as_json:
        facts = {name: getattr(report, name) for name in ("count", "first", "head", "broken", "signed")}
        print_json({"ok": ok, **facts})
        return OK if ok else FAILED
    mark = click.style("✓", fg="green") if ok else click.style("✗", fg="red")
    signed = {
        True: "the signature fits",
        False: "it has no signature that fits",
        None: "no key to check with",
    }
    click.echo(f"{mark} {report.count} events from {report.first}: {report.broken or 'every link holds'}")
    click.echo(f"  {signed[report.signed]}; head {report.head or 'none'}")
    return OK if ok else FAILED


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"`{file}` cannot be read: {error}", hint="check its path and mode") from None


@command.command(
    "anchor", epilog=examples("packhost audit anchor /mnt/safe/anchors.jsonl --hmac-key env:AUDIT_KEY")
)
@click.argument("file", type=_FILE)
@key_option
@workspace_option
@json_option
def anchor(file: Path, key: bytes | None, workspace: Path | None, as_json: bool) -> None:
    """Append the chain's head to FILE as a line of JSON; keep it where this machine cannot change it."""
    found = request(workspace, "audit.head")
    line = anchor_line({**found, "time": found["time"] or time.time()}, key)
    try:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{line}\n")
    except OSError as error:
        raise InvalidInput(f"`{file}` cannot be written: {error}", hint="check its path and mode") from None
    if as_json:
        print_json(json.loads(line))
    else:
        click.echo(f"event {found['id']} is anchored in {file}")


@command.command(
    "export",
    epilog=examples(
        "packhost audit export > record.jsonl",
        "packhost audit export --hmac-key env:AUDIT_KEY > signed.jsonl",
    ),
)
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this one's number.")
@click.option("--limit", type=click.IntRange(1), help="At most so many; left out, all of them.")
@click.option("--json", "as_json", is_flag=True, hidden=True, help="The lines are JSON already.")
@key_option
@workspace_option
def export(after: int, limit: int | None, as_json: bool, key: bytes | None, workspace: Path | None) -> None:
    """Print the record as JSON lines, first to last; with a key a last line signs all of them."""
    seal = ExportSeal(key) if key else None
    with_control(workspace, lambda control: _export(control, after, limit, seal))
    if seal is not None:
        click.echo(seal.line())


async def _export(control: Control, after: int, limit: int | None, seal: ExportSeal | None) -> None:
    left = limit
    cursor: int | None = after
    while cursor is not None and left != 0:
        page = _PAGE if left is None else min(_PAGE, left)
        found = await control.request("audit.export", {"after": cursor, "limit": page, "raw": True})
        for line in found["lines"]:
            click.echo(line)
            if seal is not None:
                seal.add(line)
        left = None if left is None else left - len(found["lines"])
        cursor = found["next"]


@command.command("redact", epilog=examples('packhost audit redact --event 42 --reason "a key was in it"'))
@click.option("--event", type=click.IntRange(1), required=True, help="The event's number.")
@click.option("--reason", required=True, help="Why; it stays on record.")
@workspace_option
@json_option
@click.pass_context
def redact(ctx: click.Context, event: int, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Remove what an event holds, for good; the chain stays whole and the redaction is on record.

    What a call was given stands in several events, those of the call and of its approval: all of them are
    shown, and you are asked at your terminal. Messages of a session are not part of the record's chain.
    """
    refuse_agents("packhost audit redact")
    found = request(workspace, "audit.redact", event=event, look=True)
    with Terminal("redacting") as terminal:
        terminal.write("This would be removed for good:\n")
        for one in found["events"]:
            terminal.write(f"  event {one['id']}, {one['type']}: {visible(shorten(one['data'], 300))}\n")
        agreed = terminal.confirm("Remove it?")
    done = request(workspace, "audit.redact", event=event, reason=reason) if agreed else {"events": []}
    if as_json:
        print_json({"redacted": done["events"], "reason": reason})
    else:
        click.echo(
            f"redacted events {', '.join(map(str, done['events']))}" if agreed else "nothing was removed"
        )
    ctx.exit(OK if agreed else REFUSED)
