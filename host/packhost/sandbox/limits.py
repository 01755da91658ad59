"""What one call may use of the machine.

There is no limit on processes: the kernel counts them per user, so one would hit whatever else that user
runs. Without an `exec` scope the filter allows none anyway, and threads are held by the memory that their
stacks take.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process: bytes, seconds of processor time and descriptors; `cpu` of 0 is no limit."""

    memory: int = 1 << 30
    """Address space. What a handler allocates, and its threads' stacks, come out of this."""
    cpu: int = 0
    files: int = 256
    file_size: int = 1 << 30


def apply(limits: Limits) -> None:
    """Hold this process and its descendants to the limits; they can never be raised again."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_AS, limits.memory)
    _lower(resource.RLIMIT_NOFILE, limits.files)
    _lower(resource.RLIMIT_FSIZE, limits.file_size)
    _lower(resource.RLIMIT_MEMLOCK, 1 << 16)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    if limits.cpu:
        _lower(resource.RLIMIT_CPU, limits.cpu)


def _lower(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))
