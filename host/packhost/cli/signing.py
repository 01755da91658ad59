"""Signing at the terminal: the passphrase is read from `/dev/tty` and unseals the key in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from packhost.cli.terminal import Terminal
from packhost.errors import InvalidInput, PackhostError
from packhost.workspace.operator import LOST, SHORTEST, record_of, unseal
from packhost.workspace.pen import Pen

TRIES: Final = 3


def take_pen(
    terminal: Terminal, operator: Mapping[str, Any], what: str = "The operator's passphrase"
) -> Pen | None:
    """Ask for the passphrase; `None` when no operator is set up.

    :raises PackhostError: the operator is lost, or no right passphrase came.
    """
    if operator["state"] == "none":
        return None
    if operator["record"] is None:
        raise PackhostError(
            f"an operator is needed: {operator['why']}", code="APPROVAL_MODE_UNSUPPORTED", hint=LOST
        )
    record = record_of(operator["record"])
    for left in range(TRIES - 1, -1, -1):
        passphrase = terminal.secret(f"{what}: ")
        if not passphrase:
            break
        signer = unseal(record, passphrase)
        if signer is not None:
            return Pen(signer, operator["workspace"], operator["by"])
        terminal.write("That is not it.\n" if left else "That is not it either.\n")
    raise PackhostError(
        "no right passphrase was given, so nothing was done",
        code="APPROVAL_MODE_UNSUPPORTED",
        hint="only whoever knows the operator's passphrase can do this",
    )


def new_passphrase(terminal: Terminal) -> str:
    """A passphrase, asked twice.

    :raises InvalidInput: it is too short, or the two differ.
    """
    first = terminal.secret(f"A passphrase for the operator, {SHORTEST} characters or more: ")
    if first is None or len(first) < SHORTEST:
        raise InvalidInput("the passphrase is too short", hint=f"use {SHORTEST} characters or more")
    if terminal.secret("The same once more: ") != first:
        raise InvalidInput("the two passphrases differ", hint="nothing was set; start again")
    return first
