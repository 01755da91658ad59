"""Edits of packhost.yaml that leave the rest of it as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid
from packhost.manifest.yaml import read_yaml
from packhost.workspace.rewriting import Rewriter, flow, scalar

FILE = """\
# What agents may do here.
packhost: 1

packs:
  - agent-runtime   # turns
  - id: workspace
    scopes: [path read **]   # all of it

# Nothing goes beyond these.
bound:
  - path read **             # look
  - "path write src/**"

# Rules.
policy:
- match: {permission: write}
  decide: ask
# The end.
"""
RULE = {"match": {"tool": "workspace:*"}, "decide": "deny", "reason": "not: needed"}


def data(text: str) -> dict[str, object]:
    return read_yaml(text.encode(), "packhost.yaml").data  # type: ignore[no-any-return]


def test_a_list_is_set_and_what_stays_keeps_its_line() -> None:
    rewriter = Rewriter(FILE)
    rewriter.set_list("bound", ["path read **", "path write docs/**"])
    expected = FILE.replace('  - "path write src/**"\n', "  - path write docs/**\n")
    assert rewriter.text == expected


def test_rules_are_appended_at_the_indentation_of_the_others() -> None:
    rewriter = Rewriter(FILE)
    rewriter.add_rules([RULE])
    line = '- {match: {tool: "workspace:*"}, decide: deny, reason: "not: needed"}\n'
    assert rewriter.text == FILE.replace("  decide: ask\n", f"  decide: ask\n{line}")


def test_an_entry_of_a_pack_is_narrowed_and_keeps_its_comment() -> None:
    rewriter = Rewriter(FILE)
    rewriter.set_pack_scopes({"agent-runtime": ["path read a"], "workspace": ["path read b", "path write c"]})
    packs = data(rewriter.text)["packs"]
    assert packs == [
        {"id": "agent-runtime", "scopes": ["path read a"]},
        {"id": "workspace", "scopes": ["path read b", "path write c"]},
    ]
    assert "  - id: agent-runtime  # turns\n" in rewriter.text
    assert rewriter.text.endswith(FILE[FILE.index("# Nothing goes") :])


@pytest.mark.parametrize(
    "text", ["", "packhost: 1\n", "packhost: 1\nbound: []\npolicy: []\npacks: [workspace]\n"]
)
def test_a_key_that_is_missing_or_in_brackets_is_written_anew(text: str) -> None:
    rewriter = Rewriter(text)
    rewriter.set_list("bound", ["path read src/**"])
    rewriter.add_rules([RULE])
    rewriter.add_rules([RULE])
    found = data(rewriter.text)
    assert (found["bound"], found["policy"]) == (["path read src/**"], [RULE, RULE])


def test_existing_rules_in_brackets_stay() -> None:
    rewriter = Rewriter("packhost: 1\npolicy: [{match: {}, decide: ask, reason: 'it''s'}]\n")
    rewriter.add_rules([RULE])
    assert data(rewriter.text)["policy"] == [{"match": {}, "decide": "ask", "reason": "it's"}, RULE]


def test_a_file_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigInvalid):
        Rewriter("- a\n")


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.none() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    try:
        found = data(f"key: {flow(value)}\n")
    except ConfigInvalid as error:
        # A few characters are no YAML in any form; nothing else may be refused.
        assert "does not allow" in str(error) or "a key must be" in str(error)  # noqa: PT017
    else:
        assert found == {"key": value}


@pytest.mark.parametrize("word", ["yes", "No", "null", "1.5", "~", "a: b", "#a", "- a", "x #y", " a"])
def test_what_is_no_plain_text_stands_in_quotes(word: str) -> None:
    assert scalar(word).startswith('"')
