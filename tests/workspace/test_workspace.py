"""Two configurations at once: a narrowing edit is live, a widening one waits for a person."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid, Place
from packhost.names import ToolId
from packhost.rules.policy import Facts, strictest
from packhost.rules.scopes import format_scope, path_use
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace

Write = Callable[[str], None]
Open = Callable[[], Workspace]

WIDER = "bound: [path read **, path write .agent-runtime/**, path write src/**]\n"


def texts(workspace: Workspace) -> list[str]:
    """What would become possible, as a person reads it."""
    return [change.text for change in workspace.changes()]


def writable(workspace: Workspace, path: str) -> bool:
    """Whether every layer lets a tool write there."""
    return path_use("write", path, workspace.bounds()) is None


def verdict(workspace: Workspace) -> str:
    """What both policies come to for a writing call."""
    facts = Facts(ToolId("workspace", "write_file"), "python", "write", "me", "client", {"path": "src/a"})
    first, *others = (policy.decide(facts, "guarded") for policy in workspace.policies())
    for other in others:
        first = strictest(first, other)
    return first.verdict


def accept(workspace: Workspace) -> None:
    """A person accepts the file as it stands."""
    workspace.accept(by="person", channel="test")


def test_with_no_file_the_defaults_hold_and_nothing_waits(opened: Open) -> None:
    workspace = opened()
    assert [pack.id for pack in workspace.enabled()] == ["agent-runtime", "workspace"]
    assert [layer.name for layer in workspace.bounds()] == ["workspace bound"]
    assert (workspace.pending, workspace.problems, workspace.broken) == (False, (), None)


def test_a_widening_edit_waits_until_it_is_accepted(opened: Open, write: Write) -> None:
    workspace = opened()
    write(WIDER)
    assert workspace.refresh()
    assert (writable(workspace, "src/a"), workspace.pending) == (False, True)
    assert texts(workspace) == ["the workspace's bound would allow `path write src/**`"]
    accept(workspace)
    assert (writable(workspace, "src/a"), workspace.pending) == (True, False)


def test_a_narrowing_edit_is_live_at_once_and_nothing_waits(opened: Open, write: Write) -> None:
    write(WIDER)
    workspace = opened()
    accept(workspace)
    write("bound: [path read **, path write src/deep/**]\n")
    workspace.refresh()
    assert (writable(workspace, "src/a"), writable(workspace, "src/deep/a")) == (False, True)
    assert workspace.pending is False


def test_layers_that_differ_are_named_apart_with_their_places(opened: Open, write: Write) -> None:
    write(WIDER)
    first, second = opened().bounds()
    assert (first.name, first.place) == ("workspace bound (accepted)", None)
    assert (second.name, second.place) == ("workspace bound (packhost.yaml)", Place("packhost.yaml", 2, 1))


def test_what_was_accepted_outlives_the_process(opened: Open, write: Write) -> None:
    write(WIDER)
    accept(opened())
    workspace = opened()
    assert writable(workspace, "src/a")
    assert workspace.consent is not None
    assert (workspace.consent.by, workspace.consent.channel) == ("person", "test")


def test_what_another_process_accepts_is_live_here(opened: Open, write: Write) -> None:
    write(WIDER)
    workspace = opened()
    accept(opened())
    assert workspace.refresh()
    assert writable(workspace, "src/a")


def test_a_look_at_an_unchanged_file_changes_nothing(opened: Open, write: Write, folder: Path) -> None:
    write(WIDER)
    workspace = opened()
    before = workspace.generation
    assert not workspace.refresh()
    os.utime(folder / "packhost.yaml", (1, 1))
    assert not workspace.refresh()
    assert workspace.generation == before


def test_a_file_that_is_gone_leaves_the_defaults_and_the_accepted_copy(
    opened: Open, write: Write, folder: Path
) -> None:
    write("packs: [workspace]\n" + WIDER)
    workspace = opened()
    accept(workspace)
    (folder / "packhost.yaml").unlink()
    workspace.refresh()
    assert [pack.id for pack in workspace.enabled()] == ["workspace"]
    assert not writable(workspace, "src/a")


def test_nothing_in_the_file_can_pass_for_another_change(opened: Open, write: Write) -> None:
    write(
        "policy:\n"
        '  - match: {principal: "x\\n- fine\\e[2J"}\n'
        "    decide: allow\n"
        '    reason: "y)\\n- nothing else\\u202e\\u2028"\n'
    )
    (text,) = texts(opened())
    assert text == r"a rule would allow principal `x\n- fine\x1b[2J` (y)\n- nothing else\u202e\u2028)"


def test_a_broken_edit_keeps_the_last_good_file_and_says_so(opened: Open, write: Write) -> None:
    workspace = opened()
    write("bound: [path read src/**]\n")
    workspace.refresh()
    write("bound: [path raed **]\n")
    assert workspace.refresh()
    assert [format_scope(scope) for scope in workspace.bounds()[1].scopes] == ["path read src/**"]
    assert [str(problem.place) for problem in workspace.problems] == ["packhost.yaml:2:9"]
    write("bound: [path read src/**]\n")
    workspace.refresh()
    assert workspace.problems == ()


def test_at_the_start_the_accepted_copy_stands_in_for_a_broken_file(opened: Open, write: Write) -> None:
    write(WIDER)
    accept(opened())
    write("bound: {")
    workspace = opened()
    assert (writable(workspace, "src/a"), workspace.broken) == (True, None)
    assert len(workspace.problems) == 1


def test_a_broken_file_before_any_consent_enables_nothing(opened: Open, write: Write) -> None:
    write("bound: {")
    workspace = opened()
    assert workspace.broken is not None
    assert workspace.enabled() == []
    write("")
    workspace.refresh()
    assert workspace.broken is None
    assert [pack.id for pack in workspace.enabled()] == ["agent-runtime", "workspace"]


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"version": 2}', '{"version": 1, "file": "packhost: 1", "sha256": "0", "packs": {}}'],
)
def test_a_damaged_record_counts_as_none(opened: Open, write: Write, root: Root, content: str) -> None:
    write(WIDER)
    accept(opened())
    (root.state / "accepted.json").write_text(content)
    workspace = opened()
    assert (writable(workspace, "src/a"), workspace.consent) == (False, None)
    assert "nothing counts as accepted" in workspace.problems[0].message


def test_a_file_that_is_a_link_is_not_followed(opened: Open, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("packhost: 1\n" + WIDER)
    (folder / "packhost.yaml").symlink_to(tmp_path / "elsewhere")
    workspace = opened()
    assert workspace.broken is not None
    assert "symbolic link" in workspace.broken.message


def test_a_file_that_is_a_pipe_does_not_hang(opened: Open, folder: Path) -> None:
    os.mkfifo(folder / "packhost.yaml")
    workspace = opened()
    assert workspace.broken is not None
    assert "not a regular file" in workspace.broken.message


RULE = 'policy: [{match: {tool: "workspace:*", permission: write}, decide: %s}]\n'


@pytest.mark.parametrize(
    ("accepted", "file", "expected", "waits"),
    [
        ("", RULE % "ask", "ask", False),
        ("", RULE % "deny", "deny", False),
        (RULE % "ask", "", "ask", True),
        (RULE % "deny", RULE % "ask", "deny", True),
        (RULE % "ask", RULE % "deny", "deny", True),
        (RULE % "ask", RULE % "ask", "ask", False),
        ("", RULE % "allow", "allow", True),
    ],
)
def test_the_stricter_policy_wins(
    opened: Open, write: Write, accepted: str, file: str, expected: str, waits: bool
) -> None:
    write(accepted)
    workspace = opened()
    accept(workspace)
    write(file)
    workspace.refresh()
    assert (verdict(workspace), workspace.pending) == (expected, waits)


def test_the_stricter_of_limits_levels_and_requirements_wins(opened: Open, write: Write) -> None:
    write(
        "limits: {max_argument_bytes: 10, max_result_bytes: 20}\n"
        "autonomy: {default: observe, maximum: autonomous}\nenforcement: {require: kernel}\n"
    )
    workspace = opened()
    accept(workspace)
    write(
        "limits: {max_argument_bytes: 20, max_result_bytes: 10}\n"
        "autonomy: {default: guarded, maximum: supervised}\nenforcement: {require: advisory}\n"
    )
    workspace.refresh()
    assert (workspace.limits.max_argument_bytes, workspace.limits.max_result_bytes) == (10, 10)
    assert (workspace.autonomy.default, workspace.autonomy.maximum) == ("observe", "supervised")
    assert workspace.require == "kernel"
    assert texts(workspace) == [
        "the default level of autonomy would rise from `observe` to `guarded`",
        "packs from elsewhere would need only `advisory` enforcement, not `kernel`",
        "`limits.max_argument_bytes` would rise from 10 to 20 bytes",
    ]


def test_a_default_level_never_passes_the_maximum(opened: Open, write: Write) -> None:
    write("autonomy: {maximum: observe}\n")
    assert opened().autonomy.default == "observe"


@pytest.mark.parametrize(
    ("body", "text", "code"),
    [
        ("secrets: {KEY: env:KEY}\n", "the secret `KEY` would be read from `env:KEY`", False),
        (
            "secrets: {KEY: 'cmd:pass show key'}\n",
            "the secret `KEY` would be read from `cmd:pass show key`",
            True,
        ),
        ("variables: {who: me}\n", "the values of hidden parameters (`variables`) would change", False),
        ("names: {'a:b': look}\n", "`a:b` would be called `look` by clients (`names`)", False),
        ("store: postgresql://db/x\n", "records would be kept in another store (`store`)", False),
        ("approvals: {timeout: 1h}\n", "how people are asked (`approvals`) would change", False),
        ("packs: [workspace, agent-runtime, other]\n", "the installed pack `other` would be enabled", True),
    ],
)
def test_what_cannot_be_compared_is_read_from_the_accepted_copy(
    opened: Open, write: Write, body: str, text: str, code: bool
) -> None:
    write(body)
    workspace = opened()
    assert [(change.text, change.code) for change in workspace.changes()] == [(text, code)]
    before = (workspace.secrets.names, workspace.variables, workspace.store, workspace.approvals.timeout)
    assert before == ((), {}, "sqlite", 600.0)
    accept(workspace)
    assert workspace.changes() == ()
    assert (
        (
            workspace.secrets.names,
            workspace.variables,
            workspace.store,
            workspace.approvals.timeout,
        )
        != before
        or workspace.accepted.names
        or (len(workspace.enabled()) == 3)
    )


def test_a_pack_is_enabled_when_both_name_it(opened: Open, write: Write) -> None:
    write("packs: [workspace]\n")
    workspace = opened()
    assert [pack.id for pack in workspace.enabled()] == ["workspace"]
    accept(workspace)
    write("packs: [workspace, agent-runtime]\n")
    workspace.refresh()
    assert [pack.id for pack in workspace.enabled()] == ["workspace"]
    assert texts(workspace) == ["the shipped pack `agent-runtime` would be enabled"]


def test_a_pack_s_entry_narrows_in_each_configuration(opened: Open, write: Write) -> None:
    write("packs: [{id: workspace, scopes: [path read a/**]}]\n")
    workspace = opened()
    accept(workspace)
    write("packs: [{id: workspace, scopes: [path read b/**]}]\n")
    workspace.refresh()
    (pack,) = workspace.enabled()
    assert [(layer.name, [format_scope(s) for s in layer.scopes]) for layer in pack.layers] == [
        ("pack entry `workspace` (accepted)", ["path read a/**"]),
        ("pack entry `workspace` (packhost.yaml)", ["path read b/**"]),
    ]
    assert texts(workspace) == ["the pack `workspace` would be allowed `path read b/**`"]


def test_a_pack_by_path_runs_from_the_copy_that_was_accepted(
    opened: Open, write: Write, pack: Path, root: Root
) -> None:
    write("packs: [workspace, {path: ./mine}]\nmine: {size: 3}\n")
    workspace = opened()
    assert [one.id for one in workspace.enabled()] == ["workspace"]
    assert ("the pack in `./mine` is new: its code would run", True) in [
        (change.text, change.code) for change in workspace.changes()
    ]
    accept(workspace)
    _, mine = workspace.enabled()
    assert (mine.id, mine.trust, mine.origin) == ("mine", False, "./mine")
    assert mine.path == root.state / "packs" / mine.sha256
    assert (mine.path / "mine.py").read_bytes() == (pack / "mine.py").read_bytes()
    assert workspace.config("mine") == {"size": 3}


def test_a_changed_source_is_reported_and_the_accepted_copy_runs_on(
    opened: Open, write: Write, pack: Path
) -> None:
    write("packs: [{path: ./mine}]\n")
    workspace = opened()
    accept(workspace)
    (before,) = workspace.enabled()
    (pack / "mine.py").write_text("raise SystemExit\n")
    workspace = opened()
    assert [(problem.code, problem.pack) for problem in workspace.problems] == [("PACK_CHANGED", "mine")]
    assert workspace.enabled() == [before]
    assert [(change.text, change.code) for change in workspace.changes()] == [
        ("the pack in `./mine` has changed: its code would run", True)
    ]
    accept(workspace)
    assert (workspace.problems, workspace.enabled()[0].sha256 != before.sha256) == ((), True)


def test_a_pack_by_path_that_the_file_drops_is_off_at_once(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\n")
    workspace = opened()
    accept(workspace)
    write("packs: []\n")
    workspace.refresh()
    assert (workspace.enabled(), workspace.pending) == ([], False)


def test_a_source_that_is_gone_leaves_the_accepted_copy(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\n")
    accept(opened())
    shutil.rmtree(pack)
    assert [one.id for one in opened().enabled()] == ["mine"]


def test_a_damaged_copy_does_not_run(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\n")
    workspace = opened()
    accept(workspace)
    copy = workspace.enabled()[0].path
    assert copy is not None
    (copy / "mine.py").write_text("raise SystemExit\n")
    workspace = opened()
    assert workspace.enabled() == []
    assert "gone or damaged" in workspace.problems[0].message
    accept(workspace)
    assert [one.id for one in workspace.enabled()] == ["mine"]


@pytest.mark.parametrize("what", ["file", "pack"])
def test_what_was_not_seen_is_not_accepted(opened: Open, write: Write, pack: Path, what: str) -> None:
    write("packs: [{path: ./mine}]\n")
    workspace = opened()
    seen = workspace.seen
    if what == "file":
        write("packs: [{path: ./mine, trust: true}]\n")
    else:
        (pack / "mine.py").write_text("raise SystemExit\n")
    with pytest.raises(ConfigInvalid) as caught:
        workspace.accept(by="person", channel="test", seen=seen)
    assert caught.value.code == "NOT_ACCEPTED"
    assert workspace.consent is None


def test_code_is_not_accepted_where_it_may_not_be(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\n")
    workspace = opened()
    with pytest.raises(ConfigInvalid) as caught:
        workspace.accept(by="person", channel="dialog", seen=workspace.seen, with_code=False)
    assert (caught.value.code, workspace.consent) == ("NOT_ACCEPTED", None)


def test_changes_without_code_may_be_accepted_in_the_dialog(opened: Open, write: Write) -> None:
    write(WIDER)
    workspace = opened()
    workspace.accept(by="person", channel="dialog", seen=workspace.seen, with_code=False)
    assert writable(workspace, "src/a")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda pack: (pack / "pack.yaml").unlink(), "holds no pack.yaml"),
        (lambda pack: (pack / "pack.yaml").write_text("id: x\n"), "is missing"),
        (lambda pack: (pack / "link").symlink_to("/etc"), "symbolic link"),
        (lambda pack: os.mkfifo(pack / "pipe"), "special file"),
        (shutil.rmtree, "cannot be read"),
    ],
)
def test_a_pack_that_cannot_be_copied_whole_is_not_accepted(
    opened: Open, write: Write, pack: Path, spoil: Callable[[Path], object], said: str
) -> None:
    write("packs: [{path: ./mine}]\n")
    spoil(pack)
    workspace = opened()
    with pytest.raises(Exception, match=said):
        accept(workspace)
    assert workspace.consent is None


def test_compiled_files_are_no_part_of_a_pack(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\n")
    (pack / "__pycache__").mkdir()
    (pack / "__pycache__" / "mine.cpython-311.pyc").write_bytes(b"evil")
    workspace = opened()
    accept(workspace)
    copy = workspace.enabled()[0].path
    assert copy is not None
    assert sorted(os.listdir(copy)) == ["mine.py", "pack.yaml"]


def test_trust_is_taken_back_at_once_and_given_by_consent_alone(
    opened: Open, write: Write, pack: Path
) -> None:
    write("packs: [{path: ./mine, trust: true}]\n")
    workspace = opened()
    accept(workspace)
    assert workspace.enabled()[0].trust
    write("packs: [{path: ./mine}]\n")
    workspace.refresh()
    assert not workspace.enabled()[0].trust
    accept(workspace)
    write("packs: [{path: ./mine, trust: true}]\n")
    workspace.refresh()
    assert not workspace.enabled()[0].trust
    assert [change.code for change in workspace.changes()] == [True]


def test_the_lock_shows_versions_and_hashes(opened: Open, write: Write, pack: Path, folder: Path) -> None:
    write("packs: [workspace, {path: ./mine}]\n")
    workspace = opened()
    accept(workspace)
    lock = (folder / "packhost.lock").read_text()
    assert workspace.enabled()[1].sha256 in lock
    assert 'version: "2"' in lock


def test_the_record_holds_the_accepted_bytes(opened: Open, write: Write, root: Root, folder: Path) -> None:
    write(WIDER)
    accept(opened())
    record = json.loads((root.state / "accepted.json").read_text())
    assert record["file"] == (folder / "packhost.yaml").read_text()
    assert (root.state / "accepted.json").stat().st_mode & 0o077 == 0


def test_a_pack_s_section_is_checked_by_its_own_schema(opened: Open, write: Write, pack: Path) -> None:
    write("packs: [{path: ./mine}]\nmine: {sise: 3}\n")
    workspace = opened()
    assert workspace.broken is not None
    assert workspace.broken.hint == "did you mean `size`?"


def test_the_section_of_a_pack_that_is_off_says_so(opened: Open, write: Write) -> None:
    write("packs: [workspace]\nagent_runtime: {}\n")
    workspace = opened()
    assert workspace.broken is not None
    assert workspace.broken.hint == "add `agent-runtime` to `packs`"
