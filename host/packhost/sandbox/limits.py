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
    """Limits of a process: bytes, seconds of processor time and descriptors; 0 is no limit."""

    memory: int = 1 << 30
    """Address space. What a handler allocates, and its threads' stacks, come out of this."""
    data: int = 0
    """Private memory alone, for programs that reserve far more address space than they use."""
    cpu: int = 0
    files: int = 256
    file_size: int = 1 << 30


def apply(limits: Limits) -> None:
    """Hold this process and its descendants to all limits but that on descriptors, for good."""
    _lower(resource.RLIMIT_CORE, 0)
    if limits.memory:
        _lower(resource.RLIMIT_AS, limits.memory)
    if limits.data:
        _lower(resource.RLIMIT_DATA, limits.data)
    _lower(resource.RLIMIT_FSIZE, limits.file_size)
    _lower(resource.RLIMIT_MEMLOCK, 1 << 16)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    if limits.cpu:
        _lower(resource.RLIMIT_CPU, limits.cpu)


def apply_to_descriptors(limits: Limits) -> None:
    """Hold this process and its descendants to the limit on descriptors, for good.

    It comes last, since it also counts what the whole user has on its way between processes: under a low
    limit the descriptor that the host needs could not be sent.
    """
    _lower(resource.RLIMIT_NOFILE, limits.files)


def _lower(which: int, wanted: int) -> None:
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value))
