"""The process of one call (or of a trusted pack's calls), after it was forked and before a handler runs."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import traceback
from typing import Any, NoReturn

from packhost.kinds.child import Channel, answer, read_ahead, run
from packhost.sandbox.confine import Confinement, confine
from packhost.sandbox.limits import Limits, apply_to_descriptors
from packhost.sandbox.probe import Proof

CONFINED, UNCONFINED = b"\x01", b"\x00"
"""The first byte that the host hears: everything holds, or nothing was run."""
CONNECTION = 3
"""The descriptor of the socket to the host, the only one beside the standard three."""


def run_confined(connection: int, output: int, proof: Proof) -> NoReturn:
    """Give up everything that the host does not grant, then run what it asks for."""
    channel = _settle(connection, output)
    setup = channel.receive()
    _prepare(setup)
    if setup["folder"] is not None:
        read_ahead(setup["folder"], setup["module"])
    try:
        confinement = _confinement(setup, proof)
        listener = confine(confinement)
    except Exception:  # whatever it is, nothing may run now
        traceback.print_exc()
        channel.hand_over(UNCONFINED, None)
        os._exit(1)
    channel.hand_over(CONFINED, listener)
    apply_to_descriptors(confinement.limits)
    while True:  # without a second call the host ends this process, which costs it less than waiting
        request = channel.receive()
        outcome = run(channel, request)
        sys.stdout.flush()
        sys.stderr.flush()
        answer(channel, outcome)


def _settle(connection: int, output: int) -> Channel:
    """The standard descriptors and the connection; every other one is closed."""
    empty = os.open(os.devnull, os.O_RDONLY)
    connection, output, empty = (
        os.dup(one) if one <= CONNECTION else one for one in (connection, output, empty)
    )
    for source, target in ((empty, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.dup2(connection, CONNECTION, inheritable=False)
    os.closerange(CONNECTION + 1, os.sysconf("SC_OPEN_MAX"))
    return Channel(socket.socket(fileno=CONNECTION))


def _prepare(setup: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(setup["environment"])
    tempfile.tempdir = None
    os.chdir(setup["root"])
    sys.argv = [""]


def _confinement(setup: dict[str, Any], proof: Proof) -> Confinement:
    return Confinement(
        abi=proof.abi,
        libraries=tuple(setup["libraries"]),
        programs=tuple(setup["programs"]),
        supervised=proof.supervised,
        limits=Limits(**setup["limits"]),
    )
