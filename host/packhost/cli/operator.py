"""`packhost operator`: a person who proves by a passphrase that an answer is theirs.

The passphrase is read from `/dev/tty` alone and never leaves this process: the host gets the public key,
the private key sealed, and signatures.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json
from packhost.cli.signing import new_passphrase, take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.workspace.operator import make_record
from packhost.workspace.pen import Pen


@click.group(
    "operator", short_help="Who proves by a passphrase that an answer is theirs.", epilog=GROUP_EPILOG
)
def command() -> None:
    """Who proves by a passphrase that an answer is theirs.

    With an operator set up, approving at a terminal, accepting packhost.yaml and allowing calls for good
    ask for the passphrase; approvals of assurance `operator` need it.
    """


@command.command("set", epilog=examples("packhost operator set"))
@workspace_option
@json_option
def set_operator(workspace: Path | None, as_json: bool) -> None:
    """Set the operator of this workspace up, or replace it: asks for a new passphrase, twice.

    Replacing asks for the present passphrase first. A passphrase that is lost cannot be had back.
    """
    refuse_agents("packhost operator set")
    present = request(workspace, "operator.show")
    params: dict[str, Any] = {}
    with Terminal("setting an operator up") as terminal:
        pen = take_pen(terminal, present, "The present passphrase")
        record, signer = make_record(new_passphrase(terminal), by=present["by"], at=time.time())
    if pen is not None:
        params["signed"] = pen.succession(present["fingerprint"], record.fingerprint)
    if present["consent"] is not None:
        params["consent"] = signer.sign(present["consent"].encode("ascii"))
    found = request(workspace, "operator.set", record=record.as_json(), **params)
    _say(found, as_json, f"set; its fingerprint is {record.fingerprint}")


@command.command("show", epilog=examples("packhost operator show", "packhost operator show --json"))
@workspace_option
@json_option
def show(workspace: Path | None, as_json: bool) -> None:
    """Show whether there is an operator, and the fingerprint of the key."""
    found = request(workspace, "operator.show")
    if as_json or found["state"] == "none":
        _say(found, as_json, "no operator is set up: `packhost operator set`")
        return
    print_facts(
        [
            ("Operator", found["state"]),
            ("Why", found["why"]),
            ("Fingerprint", found["fingerprint"]),
            ("Set by", found["created_by"]),
            ("Set at", moment(found["created_at"])),
        ]
    )


@command.command("remove", epilog=examples("packhost operator remove"))
@workspace_option
@json_option
def remove(workspace: Path | None, as_json: bool) -> None:
    """Remove the operator; asks for the passphrase. What needs an operator is then refused."""
    refuse_agents("packhost operator remove")
    present = request(workspace, "operator.show")
    signed: dict[str, Any] | None = None
    if present["state"] != "none":
        with Terminal("removing the operator") as terminal:
            pen: Pen | None = take_pen(terminal, present)
        signed = pen.succession(present["fingerprint"], None) if pen is not None else None
    _say(request(workspace, "operator.remove", signed=signed), as_json, "removed")


def _say(found: dict[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        keys = ("state", "why", "fingerprint", "created_by", "created_at")
        print_json({key: found[key] for key in keys})
    else:
        click.echo(sentence)
