"""The validator from the command line, with packhost and without it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import packhost.trace
from packhost.cli.run import run
from packhost.docgen.build import Page, drift
from packhost.docgen.traces import trace_reference
from packhost.trace import CODES

CORPUS = Path(__file__).parent / "corpus"
ROOM = Path(packhost.trace.__file__).parent
PAGE = Path(__file__).parents[2] / "docs/agent-runtime/trace.md"


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (["clean-batch-chat"], 0),
        (["text-tool-lookalike-chat"], 0),
        (["result-missing-chat"], 1),
        (["stop-unknown-chat"], 1),
        (["clean-batch-chat", "result-missing-chat"], 1),
        (["nothing-of-this-name", "result-missing-chat"], 2),
    ],
)
def test_the_exit_code_is_the_worst_that_was_found(files: list[str], status: int) -> None:
    assert run(["trace", "check", *(str(CORPUS / f"{name}.json") for name in files)]) == status


def test_people_get_a_table_and_see_which_file_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    clean, faulty = CORPUS / "clean-batch-chat.json", CORPUS / "result-missing-chat.json"
    run(["trace", "check", str(clean), str(faulty)])
    first, second, heads, row = capsys.readouterr().out.splitlines()
    assert first == f"{clean}: clean"
    assert second == f"{faulty}: 1 errors, 0 gaps, 0 warnings"
    assert heads.split() == ["SEVERITY", "CODE", "TURN", "CALL", "PATH", "WHAT"]
    assert row.split()[:5] == ["error", "RESULT_MISSING", "1", "c2", "/messages/1/tool_calls/1"]


def test_programs_get_one_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert run(["trace", "check", str(CORPUS / "result-late-chat.json"), str(broken), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    issue = found["files"][0]["issues"][0]
    assert (found["passed"], issue["code"], issue["tool_use_id"]) == (False, "RESULT_LATE", "c1")
    assert issue.keys() == {
        "code", "severity", "turn", "block_index", "tool_use_id", "path", "detail"
    }  # fmt: skip
    assert found["files"][1]["unreadable"].startswith("it is not JSON")


def test_a_hostile_trace_cannot_write_to_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = json.loads((CORPUS / "tool-unknown-messages.json").read_bytes())
    trace["messages"][1]["content"][0]["name"] = "x\x1b[2J\nclean"
    trace["messages"][1]["content"][0]["id"] = "\x1b]0;"
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(trace))
    assert run(["trace", "check", str(file)]) == 1
    assert "\x1b" not in capsys.readouterr().out


def bare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The module in an interpreter that sees no installed package."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "packhost.trace", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(ROOM.parents[1])},
        timeout=60,
        check=False,
    )


def test_the_module_runs_with_the_standard_library_alone(tmp_path: Path) -> None:
    ran = bare("--json", str(CORPUS / "result-missing-messages.json"), cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert json.loads(ran.stdout)["files"][0]["issues"][0]["code"] == "RESULT_MISSING"
    assert bare(str(tmp_path / "nothing.json"), cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_imports_nothing_but_the_standard_library_and_its_own_room(path: Path) -> None:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    outside = {name for name in found if not name.startswith("packhost.trace")}
    assert {name.partition(".")[0] for name in outside} <= sys.stdlib_module_names


def test_the_page_is_what_the_tables_say() -> None:
    assert drift([Page(PAGE, trace_reference())], PAGE.parent) == ""


def test_the_page_names_every_code_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [code for code in CODES if page.count(f"| `{code}` |") != 1] == []
