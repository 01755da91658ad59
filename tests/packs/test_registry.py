"""The registry: what the enabled packs bring, parsed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import Place
from packhost.kinds.base import Kind
from packhost.packs.registry import Registry, build_registry
from packhost.rules.scopes import PathScope
from packhost.workspace.workspace import Workspace

Open = Callable[..., Workspace]
Put = Callable[..., Path]


def tools_of(registry: Registry) -> list[str]:
    """The tools' canonical names."""
    return sorted(registry.tools)


def test_a_tool_is_parsed_once_with_all_that_a_call_needs(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine")
    workspace = open_workspace("packs: [{path: ./mine, scopes: [path write src/a/**]}]\n")
    tool = build_registry(workspace, kinds).tools["mine:do_it"]
    assert tool.scopes == (PathScope("write", "src/**"),)
    assert tool.path_arguments == ((("path",), "write"),)
    assert tool.place == Place("mine/pack.yaml", 8, 5)
    assert (tool.pack.shipped, tool.pack.trusted, tool.pack.folder) == (
        False,
        False,
        workspace.enabled()[0].path,
    )
    assert [layer.name for layer in tool.pack.layers] == ["pack entry `./mine`"]


def test_a_tool_is_found_by_its_wire_name(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine")
    registry = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds)
    assert registry.by_wire["mine_do_it"] is registry.tools["mine:do_it"]


def test_a_workspace_gives_a_tool_another_wire_name_and_its_own_is_no_more(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine")
    plain = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds)
    named = build_registry(open_workspace("packs: [{path: ./mine}]\nnames: {'mine:do_it': do-it}\n"), kinds)
    assert list(named.by_wire) == ["do-it"]
    tool = named.tools["mine:do_it"]
    assert (tool.id.canonical, tool.version) == ("mine:do_it", plain.tools["mine:do_it"].version)
    assert (named.problems, named.warnings) == ((), ())


@pytest.mark.parametrize("wire", ["yours_do_it", "yours-do-it", "Yours_Do_It"])
@pytest.mark.parametrize("other", ["", ", 'yours:do_it': elsewhere"])
def test_a_name_that_another_tool_has_or_had_is_not_given(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind], wire: str, other: str
) -> None:
    pack_folder("mine")
    pack_folder("yours")
    names = f"names: {{'mine:do_it': {wire}{other}}}\n"
    registry = build_registry(open_workspace(f"packs: [{{path: ./mine}}, {{path: ./yours}}]\n{names}"), kinds)
    assert registry.by_wire["mine_do_it"].id.canonical == "mine:do_it"
    assert [problem.message for problem in registry.problems] == [
        f"`names`: `mine:do_it` cannot be called `{wire}`, which is the name of `yours:do_it`"
    ]


def test_a_name_for_a_tool_that_there_is_not_is_told_with_the_nearest(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine")
    registry = build_registry(open_workspace("packs: [{path: ./mine}]\nnames: {'mine:do_ti': it}\n"), kinds)
    (said,) = registry.warnings
    assert (said.message, said.hint) == (
        "`names`: `mine:do_ti` is not a tool of an enabled pack",
        "did you mean `mine:do_it`?",
    )


def test_one_bad_pack_is_reported_and_left_out(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("bad", kind="code")
    pack_folder("good")
    registry = build_registry(open_workspace("packs: [{path: ./bad}, {path: ./good}]\n"), kinds)
    assert tools_of(registry) == ["good:do_it"]
    assert [(problem.pack, str(problem.place)) for problem in registry.problems] == [
        ("bad", "bad/pack.yaml:8:5")
    ]


def test_what_a_kind_finds_wrong_keeps_the_pack_out(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    manifest = pack_folder("mine") / "pack.yaml"
    manifest.write_text(manifest.read_text().replace("Does it.", "Does bad."))
    registry = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds)
    assert (tools_of(registry), registry.problems[0].message) == ([], "tool `do_it`: it is bad")


def test_a_pack_that_is_not_installed_is_a_problem(open_workspace: Open, kinds: dict[str, Kind]) -> None:
    registry = build_registry(open_workspace("packs: [workspace, no-such-pack]\n"), kinds)
    assert [(problem.code, problem.pack) for problem in registry.problems] == [("NOT_FOUND", "no-such-pack")]
    assert "workspace:read_file" in registry.tools


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("mine.py", "imported", "changed", True),
        ("pack.yaml", "Does it.", "Does more.", True),
        ("pack.yaml", "title: Go", "title: Go on", True),
        ("pack.yaml", 'version: "1"', 'version: "2"', True),
        ("pack.yaml", "title: Go", "title: Go", False),
    ],
)
def test_a_tool_s_version_is_that_of_its_definition_and_code(
    open_workspace: Open,
    pack_folder: Put,
    kinds: dict[str, Kind],
    file: str,
    old: str,
    new: str,
    changes: bool,
) -> None:
    path = pack_folder("mine") / file
    before = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds).tools["mine:do_it"].version
    path.write_text(path.read_text().replace(old, new))
    after = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds).tools["mine:do_it"].version
    assert (before != after) is changes


def test_a_workspace_raises_a_named_approval(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine")
    body = 'packs: [{path: ./mine}]\napprovals: {named: {"mine:go": {assurance: operator, approvers: 2}}}\n'
    approval = build_registry(open_workspace(body), kinds).approvals["mine:go"]
    assert (approval.assurance, approval.approvers, approval.title) == ("operator", 2, "Go")


def test_an_approval_of_a_pack_that_is_off_still_asks_each_time(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    pack_folder("mine", approval="other:go")
    approval = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds).approvals["other:go"]
    assert (approval.name, approval.grantable) == ("other:go", False)


def test_a_long_name_warns_of_cursor_and_stays(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind]
) -> None:
    manifest = pack_folder("mine") / "pack.yaml"
    manifest.write_text(manifest.read_text().replace("name: do_it", f"name: {'a' * 50}"))
    registry = build_registry(open_workspace("packs: [{path: ./mine}]\n"), kinds)
    assert (len(registry.tools), registry.problems) == (1, ())
    assert "Cursor" in registry.warnings[0].message


@pytest.mark.parametrize(
    ("body", "place", "hint"),
    [
        (
            'policy: [{match: {tool: "mnie:do_it"}, decide: deny}]\n',
            "packhost.yaml:3:10",
            "did you mean `mine:do_it`?",
        ),
        ("policy: [{match: {pack: mien}, decide: deny}]\n", "packhost.yaml:3:10", "did you mean `mine`?"),
        ("policy: [{match: {permission: admin}, decide: deny}]\n", "packhost.yaml:3:10", "check its `match`"),
        ('approvals: {named: {"mine:og": {approvers: 2}}}\n', "None", "did you mean `mine:go`?"),
    ],
)
def test_what_the_workspace_says_of_nothing_is_a_warning(
    open_workspace: Open, pack_folder: Put, kinds: dict[str, Kind], body: str, place: str, hint: str
) -> None:
    pack_folder("mine")
    (warning,) = build_registry(open_workspace("packs: [{path: ./mine}]\n" + body), kinds).warnings
    assert (str(warning.place), warning.hint) == (place, hint)


def test_a_broken_workspace_brings_nothing(
    open_workspace: Open, kinds: dict[str, Kind], folder: Path
) -> None:
    workspace = open_workspace("")
    (workspace.root.state / "accepted.json").unlink()
    (folder / "packhost.yaml").write_text("{")
    fresh = Workspace(workspace.root)
    assert build_registry(fresh, kinds).tools == {}
