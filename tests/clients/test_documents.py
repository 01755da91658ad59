"""Clients' files under change: what must change does, and every other byte stays."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.clients.jsonc import Json
from packhost.clients.toml import Toml
from packhost.errors import ConfigInvalid

COMMENTED = """\
{
\t// the servers
\t"mcpServers": {
\t\t"a": {"command": "x"}, // the first
\t\t/* the second */
\t\t"b": {"command": "y",},
\t},
\t"other": [1, 2,],
}"""
SERVERS = ("mcpServers",)


def test_comments_and_trailing_commas_are_read() -> None:
    assert Json(COMMENTED, "f").data == {
        "mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}},
        "other": [1, 2],
    }


def test_a_member_is_put_in_with_the_files_own_indentation() -> None:
    file = Json(COMMENTED, "f")
    file.put((*SERVERS, "c"), {"command": "z"})
    assert file.text == COMMENTED.replace(
        '"y",},\n', '"y",},\n\t\t"c": {\n\t\t\t"command": "z"\n\t\t}\n'
    ).replace("\t\t}\n\t\t}", "\t\t}\n\t}")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_member_is_taken_out_and_the_rest_stays(name: str) -> None:
    file = Json(COMMENTED, "f")
    file.drop((*SERVERS, name))
    assert list(file.get(SERVERS)) == [{"a": "b", "b": "a"}[name]]
    assert "// the servers" in file.text


def test_lines_keep_their_ends() -> None:
    file = Json(COMMENTED.replace("\n", "\r\n"), "f")
    file.put((*SERVERS, "c"), {"args": ["1"]})
    assert file.text.count("\n") == file.text.count("\r\n")


@pytest.mark.parametrize("text", ["{}", "{ }", "{\n}\n", "{\n  // nothing yet\n}\n", '{"mcpServers": {}}'])
def test_an_empty_object_takes_its_first_member(text: str) -> None:
    file = Json(text, "f")
    file.put((*SERVERS, "a"), {"command": "x"})
    assert file.get((*SERVERS, "a")) == {"command": "x"}
    assert ("// nothing yet" in text) == ("// nothing yet" in file.text)


def test_of_two_members_with_one_name_the_last_counts() -> None:
    file = Json('{"a": {"x": 1, "x": 2}}', "f")
    assert (file.get(("a", "x")), file.twice(("a",))) == (2, ["x"])


@pytest.mark.parametrize(
    ("text", "place"),
    [("", "f:1:1"), ("{", "f:1:2"), ('{"a" 1}', "f:1:6"), ("{'a': 1}", "f:1:2"), ("{}\n{}", "f:2:1")],
)
def test_what_is_no_json_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Json(text, "f")
    assert str(caught.value.place) == place


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="too deeply"):
        Json("[" * 5_000, "f")


NAMES = st.text(min_size=1, max_size=8)
OBJECTS = st.dictionaries(NAMES, st.dictionaries(NAMES, NAMES, max_size=3), min_size=1, max_size=4)


@given(OBJECTS, NAMES, st.sampled_from([None, 2, "\t"]))
def test_what_is_put_in_and_taken_out_again_leaves_the_rest(
    data: dict[str, dict[str, str]], name: str, indent: int | str | None
) -> None:
    file = Json(json.dumps(data, indent=indent, ensure_ascii=False), "f")
    file.put((name, "packhost"), {"command": "x"})
    assert file.data == {**data, name: {**data.get(name, {}), "packhost": {"command": "x"}}}
    file.drop((name, "packhost"))
    assert file.data == {**data, name: {k: v for k, v in data.get(name, {}).items() if k != "packhost"}}


CODEX = """\
model = "gpt"   # mine

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]

[mcp_servers.docs.env]
KEY = "v"

[mcp_servers."two words"]
url = "https://example.com/mcp"

[[profiles]]
name = "x"
"""


def test_a_table_is_taken_out_with_those_below_it() -> None:
    file = Toml(CODEX, "f")
    file.drop(("mcp_servers", "docs"))
    assert list(file.data["mcp_servers"]) == ["two words"]
    assert file.text.startswith('model = "gpt"   # mine\n')
    file.drop(("mcp_servers", "two words"))
    assert tomllib.loads(file.text) == {"model": "gpt", "profiles": [{"name": "x"}]}


def test_a_table_is_put_in_behind_what_is_there() -> None:
    file = Toml(CODEX.rstrip("\n"), "f")
    file.put(("mcp_servers", "packhost"), {"command": "p\x7f", "args": ["ü"], "env": {"A B": "c"}})
    assert file.text.startswith(CODEX)
    assert file.data["mcp_servers"]["packhost"] == {"command": "p\x7f", "args": ["ü"], "env": {"A B": "c"}}


def test_keys_at_the_top_and_in_tables_are_set_once() -> None:
    file = Toml('sandbox_mode = "workspace-write"\n[features]\nweb = true\n', "f")
    for _ in range(2):
        file.set(("sandbox_mode",), "read-only")
        file.set(("features", "shell_tool"), False)
    assert file.data == {"sandbox_mode": "read-only", "features": {"web": True, "shell_tool": False}}
    assert file.text.count("shell_tool") == 1


@pytest.mark.parametrize(
    "text", ['mcp_servers = {docs = {command = "x"}}\n', 'mcp_servers.docs.command = "x"\n']
)
def test_a_form_that_cannot_be_changed_by_lines_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="line by line"):
        Toml(text, "f").drop(("mcp_servers", "docs"))


def test_a_header_in_a_text_of_many_lines_is_none() -> None:
    text = 'note = """\n[mcp_servers.docs]\n"""\n[mcp_servers.docs]\ncommand = "x"\n'
    with pytest.raises(ConfigInvalid, match="line by line"):
        Toml(text, "f").drop(("mcp_servers", "docs"))
