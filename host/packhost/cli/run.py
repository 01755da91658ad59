"""The one place where an error becomes an exit code.

0 ok · 1 the tool failed · 2 usage or configuration · 3 refused · 4 approval required.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError

from packhost.characters import visible
from packhost.cli.root import packhost
from packhost.errors import PackhostError, machine_error

OK, FAILED, USAGE, REFUSED, APPROVAL = 0, 1, 2, 3, 4
INTERRUPTED: Final = 130
TRACE: Final = "PACKHOST_TRACE"
"""Set, an error that packhost does not know is shown whole."""

_STATUS: Final[dict[str, int]] = {
    "APPROVAL_REQUIRED": APPROVAL,
    **dict.fromkeys(
        (
            "SCOPE_DENIED",
            "POLICY_DENIED",
            "AUTONOMY_DENIED",
            "APPROVAL_DENIED",
            "APPROVAL_EXPIRED",
            "APPROVAL_MODE_UNSUPPORTED",
            "NOT_ACCEPTED",
            "PACK_CHANGED",
            "ENFORCEMENT_UNAVAILABLE",
            "LIMIT_EXCEEDED",
        ),
        REFUSED,
    ),
    **dict.fromkeys(
        (
            "NOT_FOUND",
            "TOOL_NOT_FOUND",
            "INVALID_INPUT",
            "MODEL_NOT_CONFIGURED",
            "STORE_UNAVAILABLE",
            "STORE_NEWER",
            "CONFIG_INVALID",
            "MANIFEST_INVALID",
            "CONTINUATION_IN_PROGRESS",
            "RESUME_STATE_CHANGED",
        ),
        USAGE,
    ),
}


def exit_status(code: str) -> int:
    """The exit code for the code of an error or a refusal; what is not listed is a tool's failure."""
    return _STATUS.get(code, FAILED)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Errors are told on stderr, or as JSON where that was asked for."""
    as_json = "--json" in arguments
    try:
        # `None` leaves it to whether stdout is a terminal.
        color = False if os.environ.get("NO_COLOR") else None
        status = packhost.main(args=list(arguments), prog_name="packhost", standalone_mode=False, color=color)
    except BaseException as error:
        return _told(innermost(error), as_json)
    return status if isinstance(status, int) else OK


def main() -> NoReturn:
    """The command `packhost`."""
    # what a start allocates it keeps: collecting while it imports costs a tenth of the start
    gc.disable()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    sys.exit(status)


def _told(error: BaseException, as_json: bool) -> int:
    if isinstance(error, Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else OK
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return FAILED
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    error = machine_error(error) or error
    if isinstance(error, PackhostError):
        _tell(_facts(error), as_json)
        return exit_status(error.code)
    if isinstance(error, click.ClickException):
        _tell(
            {"code": "INVALID_INPUT", "message": _said(error), "next": _usage(error)},
            as_json,
        )
        return USAGE
    return _unknown(error, as_json)


def _facts(error: PackhostError) -> dict[str, Any]:
    facts = {"code": error.code, "message": str(error), "next": error.hint}
    others = [str(problem) for problem in error.data.get("problems", ())]
    return {**facts, "problems": others} if len(others) > 1 else facts


def _unknown(error: BaseException, as_json: bool) -> int:
    if os.environ.get(TRACE):
        sys.excepthook(type(error), error, error.__traceback__)
    words = " ".join(f"{type(error).__name__} {error}".split())[:300]
    _tell(
        {
            "code": "TOOL_FAILED",
            "message": f"something that packhost does not know went wrong: {words}",
            "next": f"run it again with {TRACE}=1 and report what it prints",
        },
        as_json,
    )
    return FAILED


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": facts}, ensure_ascii=False, indent=2))
        return
    # a message may quote what others wrote, who would else write to the terminal what they like
    said = visible(f"{facts['code']}: {facts['message']}")
    click.echo(f"{click.style('error', fg='red', bold=True)} {said}", err=True)
    for problem in facts.get("problems", ())[1:]:
        click.echo(visible(f"  also: {problem}"), err=True)
    if facts["next"]:
        click.echo(visible(f"  next: {facts['next']}"), err=True)


def _said(error: click.ClickException) -> str:
    return _lower(" ".join(error.format_message().split()))


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context else ""


def _lower(message: str) -> str:
    first = message[:1].lower() + message[1:]
    return first.rstrip(".")


def innermost(error: BaseException) -> BaseException:
    """The one error in groups of one: task groups wrap what was raised in them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        own, _ = error.split(PackhostError)
        return innermost(own.exceptions[0]) if own else error
    return error


def _drop_output() -> None:
    """Whoever read our output is gone: keep Python from complaining when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
