"""`packhost docs build`: pages of the right packs, drift shown and told by the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

PACK = """\
packhost: 1
id: mine
version: 1.0.0
title: My Pack
tools:
  - name: hello
    description: Says hello.
    kind: python
    target: hello:hello
    permission: read
"""


def test_without_a_file_every_shipped_pack_gets_a_page(empty: Path, packhost: Callable[..., Any]) -> None:
    assert packhost("docs", "build").status == 0
    assert sorted(page.name for page in (empty / "docs/packs").iterdir()) == [
        "agent-runtime.md",
        "workspace.md",
    ]


def test_with_a_file_the_enabled_packs_do(workspace: Path, packhost: Callable[..., Any]) -> None:
    (workspace / "my-pack").mkdir()
    (workspace / "my-pack/pack.yaml").write_text(PACK)
    (workspace / "my-pack/hello.py").write_text("def hello(context, arguments):\n    return {}\n")
    (workspace / "packhost.yaml").write_text("packhost: 1\npacks: [workspace, {path: my-pack}]\n")
    assert packhost("accept", "--yes").status == 0
    assert packhost("docs", "build", "--json").status == 0
    assert sorted(page.name for page in (workspace / "docs/packs").iterdir()) == ["mine.md", "workspace.md"]


def test_a_check_writes_nothing_and_shows_what_is_missing(empty: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("docs", "build", "--check")
    assert ran.status == 1
    assert "+++ docs/packs/workspace.md" in ran.out
    assert not (empty / "docs").exists()


def test_a_check_holds_after_a_build_and_shows_drift_after_an_edit(
    empty: Path, packhost: Callable[..., Any]
) -> None:
    packhost("docs", "build")
    assert packhost("docs", "build", "--check").status == 0
    page = empty / "docs/packs/workspace.md"
    page.write_text(page.read_text().replace("# Workspace Files", "# Someone's Files"))
    ran = packhost("docs", "build", "--check", "--json")
    assert (ran.status, ran.json["fresh"]) == (1, False)
    assert "-# Someone's Files\n+# Workspace Files\n" in ran.json["diff"]


def test_notes_around_the_block_survive_a_build(empty: Path, packhost: Callable[..., Any]) -> None:
    packhost("docs", "build", "--out", "pages")
    page = empty / "pages/workspace.md"
    page.write_text(f"before\n{page.read_text()}\nafter\n".replace("# Workspace Files", "# Drifted"))
    packhost("docs", "build", "--out", "pages")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "# Drifted" not in text


def test_a_damaged_block_is_an_error_that_names_the_page(empty: Path, packhost: Callable[..., Any]) -> None:
    packhost("docs", "build")
    page = empty / "docs/packs/workspace.md"
    page.write_text(page.read_text().replace("<!-- packhost:managed:end -->", ""))
    ran = packhost("docs", "build")
    assert ran.status == 2
    assert "workspace.md" in ran.err
