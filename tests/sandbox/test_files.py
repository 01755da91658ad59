"""What the broker does with files that may be used."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import InvalidInput, NotFound, PackhostError, ScopeDenied, ToolFailed
from packhost.sandbox import changes, openat2, paths
from packhost.sandbox.paths import FileBroker

MakeBroker = Callable[..., FileBroker]


def test_reading_takes_a_part_or_the_whole(broker: FileBroker) -> None:
    assert broker.read("src/main.py") == b"print('hello')\n"
    assert broker.read("src/main.py", offset=6, limit=7) == b"'hello'"
    assert broker.read("src/main.py", offset=1000) == b""
    assert broker.read("src/main.py", limit=0) == b""


def test_a_negative_offset_is_invalid(broker: FileBroker) -> None:
    with pytest.raises(InvalidInput):
        broker.read("src/main.py", offset=-1)


def test_a_file_too_long_for_one_read_is_refused_whole_and_read_in_parts(
    broker: FileBroker, workspace: Path
) -> None:
    with open(workspace / "big", "wb") as big:
        big.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(ToolFailed, match="longer than one read"):
        broker.read("big")
    assert broker.read("big", offset=64 * 1024 * 1024) == b"\0"


def test_reading_a_folder_says_that_it_is_one(broker: FileBroker) -> None:
    with pytest.raises(ToolFailed, match="is a folder"):
        broker.read("src")


def test_a_listing_names_links_and_special_files_for_what_they_are(broker: FileBroker) -> None:
    types = {entry.path: entry.type for entry in broker.list(".")}
    assert types == {
        "dangling": "symlink",
        "docs": "directory",
        "hard.txt": "hardlink",
        "inner-link.txt": "symlink",
        "link-folder": "symlink",
        "link.txt": "symlink",
        "pipe": "other",
        "proc": "symlink",
        "src": "directory",
    }


def test_listing_a_file_says_that_it_is_one(broker: FileBroker) -> None:
    with pytest.raises(ToolFailed, match="is a file"):
        broker.list("src/main.py")


def test_a_walk_finds_readable_files_and_counts_the_rest_by_reason(
    make_broker: MakeBroker, workspace: Path
) -> None:
    (workspace / "bad\nname").write_text("")
    (workspace / "node_modules").mkdir()
    (workspace / "node_modules" / "index.js").write_text("")
    os.link(workspace / "docs" / "guide.md", workspace / "docs" / "same.md")
    walk = make_broker(("path read src/**", "path read docs/*", "path read node_modules/**")).walk(
        ".", skip_folders=("node_modules",)
    )
    assert [file.path for file in walk.files] == ["src/main.py", "src/deep/data.json"]
    assert walk.complete
    assert walk.skipped == {"scope": 7, "symlink": 1, "hardlink": 2, "name": 1, "folder": 1}


def test_a_walk_stops_at_its_limit_and_says_so(broker: FileBroker) -> None:
    walk = broker.walk(".", limit=1)
    assert len(walk.files) == 1
    assert not walk.complete


def test_a_walk_looks_at_so_many_entries_and_no_more(
    broker: FileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "MAX_SEEN", 10)
    walk = broker.walk(".", glob="**/*.json")
    assert (walk.files, walk.complete) == ((), False)


def test_a_walk_over_a_file_is_that_file(broker: FileBroker) -> None:
    assert [file.path for file in broker.walk("src/main.py").files] == ["src/main.py"]


def test_passing_through_a_folder_shows_only_what_may_be_read(make_broker: MakeBroker) -> None:
    broker = make_broker(("path read **/*.json",))
    assert [entry.path for entry in broker.list(".")] == ["docs", "src"]
    assert [entry.path for entry in broker.list("src")] == ["src/deep"]
    assert [entry.path for entry in broker.list("src/deep")] == ["src/deep/data.json"]


def test_a_folder_beside_every_scope_is_not_listed(make_broker: MakeBroker) -> None:
    broker = make_broker(("path read src/**",))
    assert [entry.path for entry in broker.list(".")] == ["src"]
    with pytest.raises(ScopeDenied):
        broker.list("docs")


def test_a_folder_whose_name_no_glob_can_spell_is_passed_through(
    make_broker: MakeBroker, workspace: Path
) -> None:
    (workspace / "src" / "[id]").mkdir()
    (workspace / "src" / "[id]" / "page.json").write_text("{}")
    broker = make_broker(("path read src/**/*.json",))
    assert [entry.path for entry in broker.list("src/[id]")] == ["src/[id]/page.json"]


def test_every_layer_has_to_cover_a_use(make_broker: MakeBroker) -> None:
    broker = make_broker(
        ("path read **",), ("path read src/**", "path write src/*.py"), ("path read **/*.py",)
    )
    assert broker.read("src/main.py") == b"print('hello')\n"
    for path, layer in (("docs/guide.md", "layer 1"), ("src/deep/data.json", "layer 2")):
        with pytest.raises(ScopeDenied) as caught:
            broker.read(path)
        assert caught.value.data["layer"] == layer
        assert caught.value.data["patterns"]
        assert caught.value.data["path"] == path


def test_a_write_scope_does_not_let_read_nor_a_read_scope_write(make_broker: MakeBroker) -> None:
    with pytest.raises(ScopeDenied):
        make_broker(("path write **",)).read("src/main.py")
    with pytest.raises(ScopeDenied):
        make_broker(("path read **",)).write("src/main.py", b"")


def test_what_lies_outside_the_scopes_is_refused_alike_whether_it_exists_or_not(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(("path read src/**",))
    messages = []
    for name in ("docs/guide.md", "docs/other.md"):
        with pytest.raises(ScopeDenied) as caught:
            broker.read(name)
        messages.append(caught.value.message.replace(name, "NAME"))
    assert messages[0] == messages[1]


def test_a_write_keeps_the_mode_and_leaves_nothing_behind(broker: FileBroker, workspace: Path) -> None:
    target = workspace / "src" / "main.py"
    target.chmod(0o640)
    broker.write("src/main.py", b"new")
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o7777 == 0o640
    assert sorted(os.listdir(workspace / "src")) == ["deep", "main.py", "up"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_write_by_root_keeps_the_owner(broker: FileBroker, workspace: Path) -> None:
    os.chown(workspace / "src" / "main.py", 1234, 2345)
    broker.write("src/main.py", b"new")
    found = (workspace / "src" / "main.py").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


def test_a_new_file_gets_the_mode_that_the_umask_leaves(broker: FileBroker, workspace: Path) -> None:
    before = os.umask(0o027)
    try:
        broker.write("src/new.py", b"")
    finally:
        os.umask(before)
    assert (workspace / "src" / "new.py").stat().st_mode & 0o777 == 0o640


def test_a_write_makes_the_folders_it_needs_unless_told_not_to(
    make_broker: MakeBroker, workspace: Path
) -> None:
    broker = make_broker(("path write a/b/*.txt",))
    with pytest.raises(NotFound):
        broker.write("a/b/c.txt", b"x", create_parents=False)
    broker.write("a/b/c.txt", b"x")
    assert (workspace / "a" / "b" / "c.txt").read_bytes() == b"x"


def test_a_write_that_fails_half_way_changes_nothing(
    broker: FileBroker, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(changes.os, "fsync", full)
    with pytest.raises(ToolFailed, match="no space left") as caught:
        broker.write("src/main.py", b"new")
    assert caught.value.hint
    assert (workspace / "src" / "main.py").read_text() == "print('hello')\n"
    assert sorted(os.listdir(workspace / "src")) == ["deep", "main.py", "up"]


def test_a_folder_is_never_replaced_by_a_file(broker: FileBroker) -> None:
    with pytest.raises(ToolFailed, match="is a folder"):
        broker.write("src", b"")


def test_an_edit_replaces_only_what_was_read(broker: FileBroker, workspace: Path) -> None:
    old = broker.read("src/main.py")
    broker.replace_if_unchanged("src/main.py", old, b"second")
    with pytest.raises(ToolFailed, match="changed by somebody else"):
        broker.replace_if_unchanged("src/main.py", old, b"third")
    assert (workspace / "src" / "main.py").read_bytes() == b"second"


def test_of_edits_made_at_once_from_the_same_content_one_wins(broker: FileBroker, workspace: Path) -> None:
    old = broker.read("src/main.py")
    start = threading.Barrier(4)
    won: list[bytes] = []

    def edit(text: bytes) -> None:
        start.wait(5)
        try:
            broker.replace_if_unchanged("src/main.py", old, text)
        except ToolFailed:
            return
        won.append(text)

    threads = [threading.Thread(target=edit, args=(b"%d" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(workspace / "src" / "main.py").read_bytes()] == won


def test_a_move_renames_and_makes_the_target_s_folders(broker: FileBroker, workspace: Path) -> None:
    broker.move("src/main.py", "lib/new/main.py")
    broker.move("src/deep", "lib/deep")
    assert (workspace / "lib" / "new" / "main.py").exists()
    assert (workspace / "lib" / "deep" / "data.json").exists()
    assert sorted(os.listdir(workspace / "src")) == ["up"]


def test_a_move_never_replaces(broker: FileBroker, workspace: Path) -> None:
    with pytest.raises(ToolFailed, match="exists already"):
        broker.move("src/main.py", "docs/guide.md")
    with pytest.raises(ToolFailed, match="into itself"):
        broker.move("src", "src/inner")
    with pytest.raises(NotFound):
        broker.move("nothing", "something")
    assert (workspace / "docs" / "guide.md").read_text() == "# guide\n"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL])
def test_a_move_without_help_from_the_system_does_not_replace_either(
    broker: FileBroker, workspace: Path, root: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(openat2, "_rename_exclusive", lambda *ends: number)
    broker.move("src/main.py", "moved.py")
    assert (workspace / "moved.py").exists()
    with pytest.raises(FileExistsError):
        openat2.rename_without_replacing(root, "moved.py", root, "docs")


def test_a_move_needs_reading_at_its_source(make_broker: MakeBroker) -> None:
    broker = make_broker(("path read public/**", "path write **"))
    with pytest.raises(ScopeDenied, match="read"):
        broker.move("docs/guide.md", "public/guide.md")


def test_a_folder_moves_only_when_all_of_it_is_covered_at_both_ends(
    make_broker: MakeBroker, workspace: Path
) -> None:
    broker = make_broker(("path read **", "path write src", "path write src/*", "path write lib/**"))
    with pytest.raises(ScopeDenied) as caught:
        broker.move("src", "lib/src")
    assert caught.value.data["path"] == "src/deep/data.json"
    assert (workspace / "src" / "deep" / "data.json").exists()


def test_deleting_takes_a_file_an_empty_folder_and_with_recursive_a_tree(
    broker: FileBroker, workspace: Path
) -> None:
    broker.delete("src/main.py")
    with pytest.raises(ToolFailed, match="not empty"):
        broker.delete("src")
    os.link(workspace.parent / "outside" / "secret.txt", workspace / "src" / "deep" / "second-name")
    broker.delete("src", recursive=True)
    assert not (workspace / "src").exists()
    assert (workspace.parent / "outside" / "secret.txt").exists()


def test_a_tree_is_deleted_whole_or_not_at_all(make_broker: MakeBroker, workspace: Path) -> None:
    broker = make_broker(("path write src", "path write src/*"))
    with pytest.raises(ScopeDenied):
        broker.delete("src", recursive=True)
    assert (workspace / "src" / "main.py").exists()


def test_the_root_is_never_written_moved_or_deleted(broker: FileBroker) -> None:
    for use in (
        lambda: broker.delete(".", recursive=True),
        lambda: broker.move(".", "elsewhere"),
        lambda: broker.write(".", b""),
        lambda: broker.make_directory("."),
    ):
        with pytest.raises(ScopeDenied):
            use()


def test_making_a_folder_makes_its_parents_and_leaves_what_is_there(
    broker: FileBroker, workspace: Path
) -> None:
    broker.make_directory("a/b/c")
    broker.make_directory("a/b/c")
    assert (workspace / "a" / "b" / "c").is_dir()
    with pytest.raises(ToolFailed, match="exists already"):
        broker.make_directory("src/main.py")


PROTECTED = [
    "packhost.yaml",
    "sub/packhost.yaml",
    "packhost.lock",
    "my-pack/pack.yaml",
    ".mcp.json",
    "deep/er/.mcp.json",
    ".claude/settings.json",
    "sub/.cursor/mcp.json",
    ".vscode/tasks.json",
    ".git/hooks/pre-commit",
    "vendor/lib/.git/config",
    "PACKHOST.YAML",
    ".Git/Config",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_what_governs_is_not_changed_by_any_way_in_or_out(
    broker: FileBroker, workspace: Path, path: str
) -> None:
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_text("governs")
    holder = f"holder/{path}"
    (workspace / holder).parent.mkdir(parents=True)
    (workspace / holder).write_text("governs")
    ways: list[Callable[[], object]] = [
        lambda: broker.write(path, b"x"),
        lambda: broker.replace_if_unchanged(path, b"governs", b"x"),
        lambda: broker.delete(path),
        lambda: broker.move(path, "taken"),
        lambda: broker.make_directory(path + "/x"),
        lambda: broker.delete("holder", recursive=True),
        lambda: broker.move("holder", "moved"),
        lambda: broker.resolve(path, "write"),
    ]
    for way in ways:
        with pytest.raises(PackhostError) as caught:
            way()
        assert caught.value.code == "SCOPE_DENIED"
        assert caught.value.data["layer"] == "protected"
    assert broker.read(path) == b"governs"


@pytest.mark.parametrize(
    ("inner", "target"),
    [
        ("hooks/pre-commit", "repo/.git"),
        ("settings.json", ".claude"),
        ("claude/x", ".vscode"),
        ("pack.yaml", "p"),
    ],
)
def test_what_governs_is_not_put_in_place_by_moving_a_folder(
    broker: FileBroker, workspace: Path, inner: str, target: str
) -> None:
    (workspace / "harmless" / inner).parent.mkdir(parents=True)
    (workspace / "harmless" / inner).write_text("x")
    with pytest.raises(ScopeDenied):
        broker.move("harmless", target)
    assert not (workspace / target).exists()


def test_a_protected_file_is_not_the_target_of_a_move(broker: FileBroker) -> None:
    with pytest.raises(ScopeDenied):
        broker.move("src/main.py", "packhost.yaml")
