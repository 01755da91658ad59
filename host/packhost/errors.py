"""The one base error, its closed set of codes, and a place in a file.

Every failure that a person or an agent may meet carries one of these codes, a sentence and what
to do next. An error is translated once at each edge: into a refusal by the gate, an exit code by
the command line, a wire error by the server.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Literal, get_args

Code = Literal[
    "NOT_FOUND",
    "TOOL_NOT_FOUND",
    "INVALID_INPUT",
    "SCOPE_DENIED",
    "POLICY_DENIED",
    "AUTONOMY_DENIED",
    "APPROVAL_REQUIRED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "APPROVAL_MODE_UNSUPPORTED",
    "NOT_ACCEPTED",
    "PACK_CHANGED",
    "TOOL_INTENT_NOT_COMMITTED",
    "TOOL_TIMEOUT",
    "TOOL_FAILED",
    "CANCELLED",
    "OUTPUT_INVALID",
    "OUTPUT_TOO_LARGE",
    "EFFECTS_UNKNOWN",
    "LIMIT_EXCEEDED",
    "MODEL_NOT_CONFIGURED",
    "ENFORCEMENT_UNAVAILABLE",
    "TOOL_COUNT_REFUSED_BY_PROVIDER",
    "STORE_UNAVAILABLE",
    "STORE_NEWER",
    "CONFIG_INVALID",
    "MANIFEST_INVALID",
    "CONTINUATION_IN_PROGRESS",
    "RESUME_STATE_CHANGED",
    "INPUT_REQUIRED",
]
CODES: frozenset[str] = frozenset(get_args(Code))


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands; `line` and `column` count from 1, 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class PackhostError(Exception):
    """The base of every error that packhost raises on purpose.

    `message` is one lower-case sentence without a final period, user input in backticks;
    `hint` says what to do next; `data` carries what a program may want to read.
    """

    code: Code = "CONFIG_INVALID"

    def __init__(
        self,
        message: str,
        *,
        code: Code | None = None,
        hint: str = "",
        place: Place | None = None,
        **data: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.place = place
        self.data = data

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class ConfigInvalid(PackhostError):
    """`packhost.yaml`, a root or an option cannot be used as it stands."""

    code: Code = "CONFIG_INVALID"


class ManifestInvalid(PackhostError):
    """A pack's manifest cannot be loaded; `place` names file, line and column."""

    code: Code = "MANIFEST_INVALID"


class InvalidInput(PackhostError):
    """Arguments do not fit a tool's schema; `data["path"]` is the offending value's place in them."""

    code: Code = "INVALID_INPUT"


class NotFound(PackhostError):
    """A named run, approval, session or pack does not exist."""

    code: Code = "NOT_FOUND"


class ScopeDenied(PackhostError):
    """A use lies outside a scope; `data` names `layer` and `patterns`."""

    code: Code = "SCOPE_DENIED"


class ToolFailed(PackhostError):
    """A handler says that it could not do what was asked; its message reaches the agent."""

    code: Code = "TOOL_FAILED"


class StoreUnavailable(PackhostError):
    """The store cannot be written or read now; nothing was acknowledged."""

    code: Code = "STORE_UNAVAILABLE"


class Conflict(PackhostError):
    """A guarded change found another state than it needs; nothing was written."""

    code: Code = "RESUME_STATE_CHANGED"


_FILES = "close what is open, or raise the limit with `ulimit -n`"
_PROCESSES = "end some, or raise the limit with `ulimit -u`"
_MACHINE: dict[int, tuple[Code, str, str]] = {
    errno.EMFILE: ("LIMIT_EXCEEDED", "this process has too many files open", _FILES),
    errno.ENFILE: ("LIMIT_EXCEEDED", "this system has too many files open", _FILES),
    errno.EAGAIN: ("LIMIT_EXCEEDED", "this user may start no further process", _PROCESSES),
    errno.ENOMEM: ("LIMIT_EXCEEDED", "there is not enough memory", "end other programs, then try again"),
    errno.ENOSPC: ("STORE_UNAVAILABLE", "the disk is full", "free space on it, then try again"),
    errno.EDQUOT: ("STORE_UNAVAILABLE", "the quota of the disk is used up", "free space, then try again"),
    errno.EROFS: ("STORE_UNAVAILABLE", "the disk is read-only", "mount it for writing, then try again"),
    errno.EIO: ("STORE_UNAVAILABLE", "the disk fails", "look at the system's log, and at the disk"),
}


def machine_error(error: BaseException) -> PackhostError | None:
    """What the machine refused, in our words; `None` for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        number = errno.EAGAIN
    if number not in _MACHINE:
        return None
    code, text, hint = _MACHINE[number]
    name = getattr(error, "filename", None)
    return PackhostError(f"{text}: `{name}`" if name else text, code=code, hint=hint)
