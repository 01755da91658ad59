"""Reference pages: the shape of a pack's page, the managed block, and that none has drifted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.cli.docs import reference_pages
from packhost.docgen.block import END, START, merge
from packhost.docgen.build import Page, drift, write
from packhost.docgen.markdown import code
from packhost.docgen.models import model_reference
from packhost.docgen.pack import GENERATED, UNDECLARED, pack_page
from packhost.docgen.workspace import shipped_manifests
from packhost.errors import ConfigInvalid
from packhost.manifest.load import parse_manifest
from packhost.manifest.model import PackManifest
from packhost.workspace.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
MANIFEST = b"""\
packhost: 1
id: sample
version: 1.0.0
title: Sample Tools
approvals:
  - {name: look, title: A look first}
tools:
  - name: plain
    description: Does one thing.
    kind: python
    target: sample:plain
    permission: read
  - name: full
    description: Does another.
    kind: python
    target: sample:full
    permission: write
    required_approvals: [sample:look]
    required_scopes: [path read a/**, path write a/**, "network example.org:443"]
    input_schema: {type: object, properties: {path: {type: string}}}
    output_schema: {type: object}
"""
text = st.text(st.characters(codec="utf-8", exclude_characters="\r"))
outside = text.filter(lambda s: START not in s and END not in s)


def sample() -> PackManifest:
    return parse_manifest(MANIFEST, "sample.yaml").manifest


def test_a_page_starts_with_its_title_and_how_it_is_generated() -> None:
    assert pack_page(sample()).startswith(f"# Sample Tools\n\n{GENERATED}\n\n## Tool Summary\n")


def test_the_summary_has_a_row_a_tool_with_scopes_verbatim() -> None:
    rows = [line for line in pack_page(sample()).splitlines() if line.startswith("|")]
    assert rows == [
        "| Tool | Permission | Required approvals | Required scopes |",
        "| --- | --- | --- | --- |",
        "| `sample:plain` | read | None | None |",
        "| `sample:full` | write | `sample:look` | "
        "`path read a/**`<br>`path write a/**`<br>`network example.org:443` |",
    ]


def test_the_details_name_what_each_tool_needs() -> None:
    details = pack_page(sample()).partition("### sample:full\n")[2]
    assert details.startswith(
        "\n- Permission: `write`\n- Required approvals: `sample:look`\n"
        "- Required scopes: `path read a/**`, `path write a/**`, `network example.org:443`\n"
    )


def test_a_schema_that_is_not_declared_is_said_to_be_none() -> None:
    plain = pack_page(sample()).partition("### sample:plain\n")[2].partition("### sample:full\n")[0]
    assert f"#### Input schema\n\n{UNDECLARED}\n\n#### Output schema\n\n{UNDECLARED}\n" in plain


def test_a_declared_schema_is_shown_as_json() -> None:
    shown = re.findall(r"```json\n(.*?)\n```", pack_page(sample()), re.DOTALL)
    assert [json.loads(schema) for schema in shown] == [
        {"type": "object", "properties": {"path": {"type": "string"}}},
        {"type": "object"},
    ]


@pytest.mark.parametrize("word", ["plain", "a|b", "`", "a``b", "`x`"])
def test_code_spans_hold_any_backticks(word: str) -> None:
    span = code(word)
    fence = re.match("`+", span)
    assert fence is not None
    inner = span[fence.end() : -fence.end()]
    assert inner.strip(" ") == word.strip(" ")
    assert fence[0] not in re.findall("`+", inner)


@given(before=outside, after=outside, old=outside, new=outside)
def test_text_outside_the_block_survives_and_inside_it_is_new(
    before: str, after: str, old: str, new: str
) -> None:
    page = merge(f"{before}{START}{old}{END}{after}", new)
    assert page == f"{before}{START}\n\n{new.strip()}\n\n{END}{after}"
    assert merge(page, new) == page


@given(existing=outside, new=outside)
def test_a_page_without_a_block_keeps_all_that_it_had(existing: str, new: str) -> None:
    page = merge(existing, new)
    assert page.startswith(START)
    assert page.rstrip().endswith(existing.strip())


@pytest.mark.parametrize(
    "damaged", [START, END, f"{END}{START}", f"{START}{START}{END}", f"{START}{END}{END}", f"a{START}b"]
)
def test_a_damaged_block_is_refused(damaged: str) -> None:
    with pytest.raises(ConfigInvalid, match="damaged"):
        merge(damaged, "new")


def test_only_what_has_changed_is_written(tmp_path: Path) -> None:
    pages = [Page(tmp_path / "deep/one.md", "one"), Page(tmp_path / "two.md", "two")]
    assert write(pages) == [page.path for page in pages]
    assert write([pages[0], Page(pages[1].path, "three")]) == [pages[1].path]


def test_a_page_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigInvalid, match="UTF-8"):
        write([Page(tmp_path / "one.md", "one")])


@pytest.mark.parametrize("model", [Settings, PackManifest])
def test_every_key_of_a_file_is_described(model: type[Settings] | type[PackManifest]) -> None:
    rows = [line for line in model_reference(model).splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_committed_pages_of_shipped_packs_have_not_drifted() -> None:
    pages = [Page(DOCS / f"packs/{one.id}.md", pack_page(one)) for one in shipped_manifests()]
    assert drift(pages, DOCS) == ""


def test_the_committed_references_have_not_drifted() -> None:
    assert drift(reference_pages(DOCS), DOCS) == ""
