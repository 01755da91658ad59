"""How a client starts this very installation for a workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packhost.errors import PackhostError
from packhost.manifest.yaml import read_yaml
from packhost.workspace.root import CONFIG_FILE

SERVER = "packhost"
"""The name that clients know this server by."""
_ENV = "env:"


@dataclass(frozen=True, slots=True)
class Launch:
    """An absolute command with its arguments, and the variables that it must find in its environment."""

    command: str
    arguments: tuple[str, ...]
    variables: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the client's file has to hold the values of, since it held them before."""


def launch(root: Path) -> Launch:
    """What starts a host for the workspace at `root`."""
    command, *before = installed_command()
    return Launch(command, (*before, "serve", "-w", str(root)), key_variables(root))


def installed_command() -> list[str]:
    """The absolute command of this installation: its script beside Python, else Python with the module."""
    python = Path(sys.executable).absolute()
    script = python.with_name("packhost")
    if script.is_file() and os.access(script, os.X_OK):
        return [str(script)]
    return [str(python), "-P", "-m", "packhost"]


def key_variables(root: Path) -> tuple[str, ...]:
    """The variables that the workspace's `secrets` are read from, in the file's order.

    A file that is missing or broken names none: what is printed from it is only a proposal.
    """
    try:
        data = read_yaml((root / CONFIG_FILE).read_bytes(), CONFIG_FILE).data
    except (OSError, PackhostError):
        return ()
    secrets = data.get("secrets") if isinstance(data, Mapping) else None
    if not isinstance(secrets, Mapping):
        return ()
    references = [one for one in secrets.values() if isinstance(one, str) and one.startswith(_ENV)]
    return tuple(dict.fromkeys(reference.removeprefix(_ENV) for reference in references))
