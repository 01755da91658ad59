"""The process from which each call's process is forked: one thread, no secrets, environment or privileges.

It imports what handlers mostly need, proves what the kernel enforces here, and then forks when the host
asks. It never runs a pack's code and reads nothing that a pack wrote. It reaps what it forked, and whatever
that started: a call has ended only when its whole process group is gone. When the host goes, all goes.
"""

from __future__ import annotations

import array
import asyncio
import base64
import collections
import concurrent.futures
import csv
import ctypes
import dataclasses
import datetime
import decimal
import difflib
import gc
import hashlib
import importlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import typing
import urllib.parse
import uuid
import zlib
from contextlib import suppress

from packhost.kinds.confined import run_confined
from packhost.kinds.frames import STATUS, SUPERVISED
from packhost.sandbox import capabilities
from packhost.sandbox.confine import make_ready
from packhost.sandbox.probe import Proof, prove

WARM = (asyncio, base64, collections, concurrent.futures, csv, datetime, decimal, difflib, hashlib, importlib)
ALSO_WARM = (
    json,
    pathlib,
    random,
    shutil,
    statistics,
    subprocess,
    tempfile,
    textwrap,
    typing,
    urllib.parse,
    uuid,
    zlib,
)
"""Imported here so that no call pays for them."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)
_DESCRIPTORS = 3
_LINGER = 2
"""Milliseconds between two looks at a process group that is still being killed."""


@dataclasses.dataclass(slots=True)
class _Child:
    """A forked process: `pid` is its process group's number too; `status` is the host's ear."""

    pid: int
    descriptor: int
    status: socket.socket
    code: int | None = None


class _Zygote:
    def __init__(self, control: socket.socket, proof: Proof) -> None:
        self._control = control
        self._proof = proof
        self._alone = dataclasses.replace(proof, supervised=False)
        self._children: dict[int, _Child] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Fork and reap until the host is gone."""
        while True:
            ending = any(child.code is not None for child in self._children.values())
            for descriptor, _ in self._poll.poll(_LINGER if ending else None):
                if descriptor == self._control.fileno():
                    if not self._fork():
                        return
                else:
                    self._ended(self._children[descriptor])
            for child in [child for child in self._children.values() if child.code is not None]:
                self._finish(child)

    def end(self) -> None:
        """Kill everything that was forked."""
        for child in self._children.values():
            _kill_group(child.pid)
            with suppress(OSError):
                signal.pidfd_send_signal(child.descriptor, signal.SIGKILL)

    def _fork(self) -> bool:
        data, descriptors = _receive(self._control)
        if not data:
            return False
        if len(descriptors) != _DESCRIPTORS:
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        connection, output, told = descriptors
        try:
            pid = os.fork()
        except OSError:  # no room for a process: this one alone is refused, by what it was to be told on
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        if pid == 0:
            _become(connection, output, self._proof if data == SUPERVISED else self._alone)
        os.close(connection)
        os.close(output)
        child = _Child(pid, os.pidfd_open(pid), socket.socket(fileno=told))
        self._children[child.descriptor] = child
        self._poll.register(child.descriptor, select.POLLIN)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [child.descriptor]))
        with suppress(OSError):
            child.status.sendmsg([STATUS.pack(pid)], [rights], socket.MSG_DONTWAIT)
        return True

    def _ended(self, child: _Child) -> None:
        # The group is killed while its leader's number is still taken: it cannot mean another group.
        _kill_group(child.pid)
        self._poll.unregister(child.descriptor)
        child.code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])

    def _finish(self, child: _Child) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-child.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(child.pid, signal.SIGKILL)
            return  # somebody is left: look again
        except ProcessLookupError:
            pass
        except PermissionError:
            return
        del self._children[child.descriptor]
        os.close(child.descriptor)
        with child.status, suppress(OSError):
            child.status.send(STATUS.pack(child.code or 0), socket.MSG_DONTWAIT)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    try:
        data, ancillary, _, _ = control.recvmsg(
            1, socket.CMSG_SPACE(_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return b"", []
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def _become(connection: int, output: int, proof: Proof) -> typing.NoReturn:
    """Turn this fresh fork into the process of one call."""
    try:
        zygote = os.getppid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        run_confined(connection, output, proof)
    except BaseException as error:
        # Without a traceback: to read its lines, files would have to be opened that the host may not answer.
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(1)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit


def main(descriptor: int, parent: int, libraries: typing.Sequence[str], abi: int | None) -> None:
    """Serve the host behind `descriptor` until it goes."""
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return
    os.set_inheritable(descriptor, False)
    control = socket.socket(fileno=descriptor)
    capabilities.drop_all()
    proof = prove(libraries, abi)
    try:
        control.send(json.dumps(dataclasses.asdict(proof)).encode())
    except ConnectionError:  # the host went while this was proved
        return
    if proof.level != "advisory":
        for supervised in (False, True):
            make_ready(proof.abi, supervised=supervised)
    gc.collect()
    gc.freeze()
    zygote = _Zygote(control, proof)
    try:
        zygote.serve()
    finally:
        zygote.end()
