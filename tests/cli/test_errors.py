"""Every error ends as one of five exit codes, told to people in lines and to programs as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest

from packhost.cli.root import packhost as root
from packhost.cli.run import APPROVAL, FAILED, REFUSED, USAGE, exit_status, run
from packhost.errors import CODES, PackhostError

EXPECTED = {
    "TOOL_FAILED": FAILED,
    "TOOL_TIMEOUT": FAILED,
    "OUTPUT_INVALID": FAILED,
    "EFFECTS_UNKNOWN": FAILED,
    "TOOL_INTENT_NOT_COMMITTED": FAILED,
    "CANCELLED": FAILED,
    "INVALID_INPUT": USAGE,
    "TOOL_NOT_FOUND": USAGE,
    "NOT_FOUND": USAGE,
    "CONFIG_INVALID": USAGE,
    "MANIFEST_INVALID": USAGE,
    "MODEL_NOT_CONFIGURED": USAGE,
    "SCOPE_DENIED": REFUSED,
    "POLICY_DENIED": REFUSED,
    "AUTONOMY_DENIED": REFUSED,
    "APPROVAL_DENIED": REFUSED,
    "NOT_ACCEPTED": REFUSED,
    "APPROVAL_REQUIRED": APPROVAL,
}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    def fail_with(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(root, "get_command", lambda ctx, name: command)

    return fail_with


@pytest.mark.parametrize(("code", "status"), EXPECTED.items())
def test_a_code_has_its_exit_code(code: str, status: int) -> None:
    assert exit_status(code) == status


@pytest.mark.parametrize("code", sorted(CODES))
def test_no_code_of_an_error_exits_with_success(code: str) -> None:
    assert exit_status(code) in (FAILED, USAGE, REFUSED, APPROVAL)


def test_an_error_in_groups_of_one_is_told_as_itself(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str]
) -> None:
    inner = PackhostError("no such door", code="SCOPE_DENIED", hint="use another")
    failing(ExceptionGroup("outer", [ExceptionGroup("inner", [inner])]))
    assert run(["doctor"]) == REFUSED
    assert capfd.readouterr().err == "error SCOPE_DENIED: no such door\n  next: use another\n"


def test_a_packhost_error_beside_others_in_a_group_is_the_one_that_is_told(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str]
) -> None:
    failing(ExceptionGroup("both", [OSError("gone"), PackhostError("no such door", code="NOT_FOUND")]))
    assert run(["doctor"]) == USAGE
    assert "no such door" in capfd.readouterr().err


def test_an_error_that_packhost_does_not_know_is_one_sentence_and_no_traceback(
    failing: Callable[[BaseException], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PACKHOST_TRACE", raising=False)
    failing(ValueError("first\nsecond"))
    assert run(["doctor"]) == FAILED
    told = capfd.readouterr().err
    assert "ValueError first second" in told
    assert "Traceback" not in told


def test_its_traceback_is_there_for_whoever_asks(
    failing: Callable[[BaseException], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PACKHOST_TRACE", "1")
    failing(ValueError("odd"))
    run(["doctor"])
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_ends_quietly(
    failing: Callable[[BaseException], None], capfd: pytest.CaptureFixture[str], error: BaseException
) -> None:
    failing(error)
    assert run(["doctor"]) == 130
    assert "".join(capfd.readouterr()).strip() == ""


def test_a_wrong_option_is_a_usage_error_in_json_where_json_is_asked_for(
    packhost: Callable[..., Any],
) -> None:
    ran = packhost("tools", "list", "--json", "--jason")
    assert ran.status == USAGE
    assert ran.json["error"]["code"] == "INVALID_INPUT"
    assert "--jason" in ran.json["error"]["message"]


def test_a_folder_that_is_not_there_is_a_configuration_error_in_json(packhost: Callable[..., Any]) -> None:
    ran = packhost("tools", "list", "--json", "-w", "nowhere")
    assert ran.status == USAGE
    assert ran.json["error"]["code"] == "CONFIG_INVALID"


def test_every_problem_of_a_broken_file_is_told(empty: Any, packhost: Callable[..., Any]) -> None:
    (empty / "packhost.yaml").write_text("packhost: 1\nbund: []\npolciy: []\n")
    ran = packhost("accept", "--yes", "--json")
    assert ran.status == USAGE
    assert ran.json["error"]["code"] == "CONFIG_INVALID"
    assert "packhost.yaml:2" in ran.json["error"]["message"]
