"""This process's own stdin and stdout, claimed for the protocol."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Private descriptors of stdin and stdout; meanwhile 0 is empty and 1 goes to stderr.

    What a handler or a child prints can so never reach the protocol.
    """
    sys.stdout.flush()
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        yield source, sink
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        # The reading thread of an unpollable stdin may still stand in `read`: its descriptor is left open,
        # lest the number be used for something else under it.
        os.close(sink)
