"""The interpreter of code tools, started so that the kernel confines it: a hole in it leads nowhere.

The interpreter has no system calls to make for the code that it runs, and that is what its callers rely
on. Should code find a way out of it all the same, its process reads nothing but the interpreter's own
libraries and the time zones, writes nothing, and reaches no network and no other process. Where the kernel
has no Landlock it is started as it is.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

from packhost.sandbox import landlock
from packhost.sandbox.confine import Confinement, confine
from packhost.sandbox.limits import Limits
from packhost.sandbox.programs import closure

log = logging.getLogger(__name__)

MEMORY: Final = 1 << 31
"""Bytes of address space; the values of a call may take far less, and the interpreter holds them to it."""
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_BECOME: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from packhost.kinds.code_launch import become; become(sys.argv[2], sys.argv[3:])"
)


class Launcher:
    """A program that becomes the confined interpreter; made when it is first needed."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def path(self) -> str:
        """The program to start.

        :raises FileNotFoundError: when the interpreter is not installed.
        """
        from pydantic_monty._binary import find_monty_binary  # 30 ms, and only code tools need it

        interpreter = find_monty_binary()
        if sys.platform != "linux" or landlock.detect() < 1:
            log.warning("no Landlock here: the kernel does not confine the interpreter of code tools")
            return interpreter
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="packhost-code-")
            host = str(Path(__file__).resolve().parents[2])
            command = shlex.join([sys.executable, "-IS", "-c", _BECOME, host, interpreter])
            program = Path(self._folder.name) / "interpreter"
            program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            program.chmod(0o700)
        return str(Path(self._folder.name) / "interpreter")

    def close(self) -> None:
        """Remove it."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def become(interpreter: str, arguments: list[str]) -> None:
    """Confine this process and run the interpreter in its place, with no environment.

    :raises OSError: when the kernel refuses a part of it; nothing is run then.
    """
    limits = Limits(memory=MEMORY, file_size=0)
    confine(Confinement(landlock.detect(), _LIBRARIES, tuple(closure(interpreter)), limits=limits))
    os.execve(interpreter, [interpreter, *arguments], {})  # noqa: S606 - no shell is what is wanted
