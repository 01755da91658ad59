"""All of it together: capabilities, limits, Landlock and the filter, which comes last."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from packhost.sandbox import capabilities, landlock, limits, seccomp
from packhost.sandbox.landlock import PathRule
from packhost.sandbox.limits import Limits

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process may still reach. Nothing of the workspace: its files are the supervising host's."""

    abi: int
    libraries: tuple[str, ...]
    """Folders and files that may be read: the interpreter's own, and the pack's code."""
    programs: tuple[str, ...] = ()
    """Files that may be executed, their interpreters and loaders among them; none forbids new processes."""
    supervised: bool = False
    limits: Limits = field(default_factory=Limits)


def make_ready(abi: int, *, supervised: bool) -> None:
    """In a process from which confined ones are forked: do once what each would have to do."""
    for programs in ((), ("any",)):
        seccomp.pack(_filter(Confinement(abi, (), programs, supervised)))


def confine(wanted: Confinement) -> int | None:
    """Give up everything else, for this thread and all that it starts, for good.

    Gives the descriptor on which the host answers file calls, when the process is supervised.

    :raises OSError: when the kernel refuses a part; the process then has to end without running anything.
    """
    rules = [PathRule(path, landlock.READ) for path in (*wanted.libraries, *DEVICES)]
    rules += [PathRule(path, landlock.RUN) for path in wanted.programs]
    rules.append(PathRule(os.devnull, landlock.WRITE_FILE | landlock.TRUNCATE))
    limits.apply(wanted.limits)
    if any(capabilities.held()):
        capabilities.drop_all()
    landlock.restrict([rules], wanted.abi)
    return seccomp.install(_filter(wanted))


def _filter(wanted: Confinement) -> seccomp.Filter:
    return seccomp.Filter(
        os.getpid(),
        may_exec=bool(wanted.programs),
        supervised=wanted.supervised,
        scoped_signals=wanted.abi >= landlock.SCOPES,
        handled_truncate=wanted.abi >= landlock.HANDLES_TRUNCATE,
    )
