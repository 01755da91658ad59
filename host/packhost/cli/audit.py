"""`packhost audit`: prove that the record is whole, print it, and take a payload out of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from packhost.cli.exports import Proof, check_files
from packhost.cli.host import request, with_control
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json
from packhost.cli.run import FAILED, OK, REFUSED
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.control.base import Control
from packhost.errors import ConfigInvalid, InvalidInput
from packhost.gate.display import shorten, visible
from packhost.store.seals import Anchor, ExportSeal, anchor_line, read_anchors
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
        "packhost audit verify --export pruned-1.jsonl --export pruned-2.jsonl --join",
    ),
)
@click.option(
    "--head", "hashes", metavar="HASH", multiple=True, help="A head that the chain must go through."
)
@click.option(
    "--anchor", type=_FILE, metavar="FILE", help="A file of anchors that the chain must go through."
)
@click.option(
    "--export",
    "exported",
    type=_FILE,
    metavar="FILE",
    multiple=True,
    help="Look at an export, not at this record; may be given for each of several parts.",
)
@click.option(
    "--join", is_flag=True, help="Look at this record as well: the exports and it must be one chain."
)
@key_option
@workspace_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    hashes: tuple[str, ...],
    anchor: Path | None,
    exported: tuple[Path, ...],
    join: bool,
    key: bytes | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Walk the whole chain; the exit code is 1 when a link does not hold.

    A chain cannot show that its end was cut off, and whoever may write the store may write it anew: a head or
    a file of anchors that is kept elsewhere proves that neither was done since. With a key each anchor, or
    the export's signature, must be made with it.

    A record whose beginning was pruned is held to what is on record of that. An anchor in the pruned part is
    held to only together with the export of it: `--export FILE --join`.
    """
    anchors = [Anchor(one) for one in hashes]
    if anchor is not None:
        anchors += read_anchors(_read(anchor), str(anchor), key)
        if not anchors:
            raise InvalidInput(f"`{anchor}` holds no anchor", hint="`packhost audit anchor` writes one")
    if join and not exported:
        raise InvalidInput("there is no export to join", hint="name its file: `--export FILE --join`")
    proof = check_files(exported, key, anchors) if exported else None
    found: dict[str, Any] | None = None
    if proof is None or join:
        left = [one for one in anchors if proof is None or not proof.reaches(one)]
        given = [{"hash": one.hash, "id": one.id} for one in left]
        found = request(workspace, "audit.verify", anchors=given)
        if proof is not None and proof.span is not None:
            joined = request(workspace, "audit.join", **asdict(proof.span))
            proof = replace(proof, fault=proof.fault or joined["fault"])
    ok = _holds(len(anchors), found, proof)
    if as_json:
        print_json({**(found or {}), **(proof.as_json() if proof is not None else {}), "ok": ok})
    else:
        if proof is not None:
            _tell_export(proof, joined=found is not None)
        if found is not None:
            _tell_verified(found)
        if not ok and _sound(found, proof):
            bad = click.style("✗", fg="red")
            click.echo(f"{bad} none of the heads that were kept could be held to: join the exports of them")
    ctx.exit(OK if ok else FAILED)


def _sound(found: dict[str, Any] | None, proof: Proof | None) -> bool:
    return (found is None or bool(found["ok"])) and (proof is None or proof.ok)


def _holds(anchors: int, found: dict[str, Any] | None, proof: Proof | None) -> bool:
    """All that was looked at is sound, and where heads were kept at least one of them could be held to."""
    held = len(proof.seen) if proof is not None else 0
    if found is not None:
        held += found["anchors"] - len(found["unchecked"])
    return _sound(found, proof) and (held > 0 or not anchors)


def _tell_verified(found: dict[str, Any]) -> None:
    good, bad = click.style("✓", fg="green"), click.style("✗", fg="red")
    note = click.style("·", fg="yellow")
    for text in found["missed"]:
        click.echo(f"{bad} {text}")
    if found["first_bad"] is not None:
        click.echo(
            f"{bad} the first bad link is event {found['first_bad']} of {found['events']}: {found['reason']}"
        )
    else:
        gone = f", {found['redacted']} payloads redacted on record" if found["redacted"] else ""
        begin = f" from {found['pruned'] + 1} on" if found["pruned"] else ""
        mark, among = (note, " among them") if found["missed"] else (good, "")
        click.echo(f"{mark} {found['events']} events{begin}, every link holds{among}{gone}")
        click.echo(f"  head {found['head']}")
    for one in found["prunings"]:
        why = f": {one['reason']}" if one["reason"] else ""
        exported = f"export {one['exported'][:16]}…" if one["exported"] else "without an export"
        signed = {None: "", True: ", signed by the operator", False: ", not signed by the operator"}
        click.echo(
            f"{note} events {one['first']} to {one['last']} were pruned {moment(one['at'])} by {one['by']}, "
            f"{exported}{signed[one['signed']]}{why}"
        )
    if found["unfinished"]:
        click.echo(f"{note} {found['unfinished']} of them are still there: `packhost store prune` goes on")
    for text in found["unchecked"]:
        click.echo(f"{note} {text}")
    held = found["anchors"] - len(found["unchecked"]) - len(found["missed"])
    if held and not found["missed"]:
        click.echo(f"{good} it goes through {held} of {found['anchors']} heads that were kept")


def _tell_export(proof: Proof, *, joined: bool) -> None:
    mark = click.style("✓", fg="green") if proof.ok else click.style("✗", fg="red")
    signed = {
        True: "the signature fits",
        False: "it has no signature that fits",
        None: "no key to check with",
    }
    click.echo(f"{mark} {proof.count} events from {proof.first}: {proof.fault or 'every link holds'}")
    click.echo(f"  {signed[proof.signed]}; head {proof.head or 'none'}")
    if proof.seen:
        click.echo(f"{mark} it goes through {len(proof.seen)} of the heads that were kept")
    if joined and proof.ok:
        click.echo(f"{mark} the record goes on where the export ends")
    for text in proof.missed:
        click.echo(f"{click.style('✗', fg='red')} {text}")


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


@command.command(
    "redact",
    epilog=examples(
        'packhost audit redact --event 42 --reason "a key was in it"',
        'packhost audit redact --event 42 --run --texts key.txt --reason "a key was in it"',
    ),
)
@click.option("--event", type=click.IntRange(1), required=True, help="The event's number.")
@click.option("--reason", required=True, help="Why; it stays on record.")
@click.option("--run", is_flag=True, help="Take the same texts out of the whole run of the event.")
@click.option(
    "--texts", type=_FILE, metavar="FILE", help="With --run: further texts to take out, one a line."
)
@workspace_option
@json_option
@click.pass_context
def redact(
    ctx: click.Context,
    event: int,
    reason: str,
    run: bool,
    texts: Path | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Remove what an event holds, for good; the chain stays whole and the redaction is on record.

    What a call was given stands in several events, those of the call and of its approval: all of them are
    shown, and you are asked at your terminal. With --run the same texts also go from the run's request,
    state and result, its other calls and events, and the messages of its session; such a run must not be
    running. Copies outside the store, such as exports, archives and backups, keep what they hold.
    """
    refuse_agents("packhost audit redact")
    if texts is not None and not run:
        raise InvalidInput("`--texts` goes with `--run`", hint="say `--run` as well")
    wanted = [line for line in _read(texts).splitlines() if line] if texts is not None else []
    more: dict[str, Any] = {"run": True, "texts": wanted} if run else {}
    found = request(workspace, "audit.redact", event=event, look=True, **more)
    with Terminal("redacting") as terminal:
        terminal.write("This would be removed for good:\n")
        for one in found["events"]:
            terminal.write(f"  event {one['id']}, {one['type']}: {visible(shorten(one['data'], 300))}\n")
        if run:
            terminal.write(f"  and the same texts in {_said(found['traces'])}\n")
        agreed = terminal.confirm("Remove it?")
    done = (
        request(workspace, "audit.redact", event=event, reason=reason, **more) if agreed else {"events": []}
    )
    if as_json:
        print_json({"redacted": done["events"], "reason": reason})
    else:
        click.echo(
            f"redacted events {', '.join(map(str, done['events']))}" if agreed else "nothing was removed"
        )
    ctx.exit(OK if agreed else REFUSED)


def _said(traces: dict[str, Any]) -> str:
    parts = [f"`{part}`" for part in traces["parts"]]
    counts = [f"{traces[name]} {name}" for name in ("messages", "calls", "events", "approvals", "questions")]
    return f"{', '.join([*parts, *counts])} of {', '.join(traces['runs'])}"
