"""The root and the private folders of its state."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid
from packhost.workspace.root import SOCKET_LIMIT, Root, find_root


def test_the_root_is_the_nearest_folder_upward_with_a_file(folder: Path) -> None:
    (folder / "packhost.yaml").write_text("packhost: 1\n")
    (folder / "a" / "b").mkdir(parents=True)
    assert find_root(folder / "a" / "b") == folder.resolve()


def test_without_a_file_the_root_is_where_the_search_began(folder: Path) -> None:
    (folder / "a").mkdir()
    assert find_root(folder / "a") == (folder / "a").resolve()


@pytest.mark.parametrize("name", ["missing", "a-file", "nul\0"])
def test_a_root_that_is_no_folder_is_an_error(folder: Path, name: str) -> None:
    (folder / "a-file").write_text("")
    with pytest.raises(ConfigInvalid, match="folder"):
        find_root(folder / name)


@pytest.mark.parametrize("where", ["/", "home", "state", "state/packhost", "."])
def test_a_root_that_is_too_wide_is_an_error(tmp_path: Path, environ: dict[str, str], where: str) -> None:
    (tmp_path / "state" / "packhost").mkdir(parents=True)
    with pytest.raises(ConfigInvalid):
        Root(tmp_path / where, environ)


def test_a_root_within_the_state_is_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "state" / "packhost" / "abc").mkdir(parents=True)
    with pytest.raises(ConfigInvalid, match="own state"):
        Root(tmp_path / "state" / "packhost" / "abc", environ)


def test_a_link_to_the_home_folder_does_not_hide_it(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home")
    with pytest.raises(ConfigInvalid, match="home folder"):
        Root(tmp_path / "link", environ)


def test_state_is_private_and_lies_outside(root: Root, tmp_path: Path) -> None:
    assert root.state.parent == tmp_path / "state" / "packhost"
    assert stat.S_IMODE(root.state.stat().st_mode) == 0o700


def test_two_names_of_one_folder_have_one_state(root: Root, tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "link").symlink_to(root.path)
    with Root(tmp_path / "link", environ) as other:
        assert other.state == root.state


def test_an_open_state_folder_is_closed(folder: Path, environ: dict[str, str]) -> None:
    with Root(folder, environ) as first:
        first.state.chmod(0o755)
    with Root(folder, environ) as second:
        assert stat.S_IMODE(second.state.stat().st_mode) == 0o700


def test_a_state_folder_that_is_a_link_is_an_error(
    folder: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    with Root(folder, environ) as first:
        first.state.rmdir()
        first.state.symlink_to(tmp_path / "home")
    with pytest.raises(ConfigInvalid, match="not private"):
        Root(folder, environ)


def test_a_relative_state_home_is_not_followed(folder: Path, tmp_path: Path) -> None:
    with Root(folder, {"HOME": str(tmp_path / "h"), "XDG_STATE_HOME": "relative"}) as root:
        assert root.state.is_relative_to(tmp_path / "h" / ".local" / "state" / "packhost")


def test_the_socket_lies_in_the_state_when_its_path_is_short(tmp_path: Path, folder: Path) -> None:
    short = Path("/tmp") / f"p{os.getpid()}"
    with Root(folder, {"HOME": str(tmp_path / "h"), "XDG_STATE_HOME": str(short)}) as root:
        assert root.socket == root.state / "host.sock"
        root.state.rmdir()
    (short / "packhost").rmdir()
    short.rmdir()


def test_the_socket_s_path_is_short_even_when_the_state_s_is_long(tmp_path: Path, folder: Path) -> None:
    long = tmp_path / ("x" * 90)
    with Root(folder, {"HOME": str(tmp_path / "h"), "XDG_STATE_HOME": str(long)}) as root:
        socket = root.socket
    assert len(os.fsencode(socket)) < SOCKET_LIMIT
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_the_root_stays_open_when_it_is_renamed(root: Root, folder: Path) -> None:
    (folder / "kept").write_text("x")
    folder.rename(folder.with_name("moved"))
    assert "kept" in os.listdir(root.descriptor)


def test_closing_twice_does_no_harm(root: Root) -> None:
    root.close()
    root.close()
    assert root.descriptor == -1
