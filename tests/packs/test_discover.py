"""Packs are found by entry point or in a folder, and never imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import ConfigInvalid, ManifestInvalid, NotFound
from packhost.packs.discover import EntryPoints, find_packs, package_folder
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.workspace import EnabledPack, Workspace

Install = Callable[..., Path]
Installed = Callable[[], EntryPoints]


def enabled(pack: str, *, trust: bool = False) -> EnabledPack:
    """A pack that a workspace enables by its id."""
    return EnabledPack(pack, None, trust, ())


@pytest.mark.parametrize("package", ["pack_other", "outer_other.inner.other"])
@pytest.mark.parametrize("listed", [True, False])
def test_an_installed_pack_is_found_without_importing_it(
    install: Install, installed: Installed, package: str, listed: bool
) -> None:
    install("other", package=package, listed=listed)
    ((pack,), problems) = find_packs([enabled("other")], installed())
    assert (pack.manifest.id, pack.package, pack.shipped, problems) == ("other", package, False, ())
    assert not {package, package.partition(".")[0]} & sys.modules.keys()


def test_shipped_packs_are_found_beside_the_host(installed: Installed) -> None:
    found, problems = find_packs([enabled(pack) for pack in SHIPPED_PACKS], installed())
    assert problems == ()
    assert [(pack.manifest.id, pack.shipped) for pack in found] == [(pack, True) for pack in SHIPPED_PACKS]


def test_a_pack_that_is_not_installed_is_told_the_nearest_one(installed: Installed) -> None:
    with pytest.raises(NotFound) as caught:
        installed().locate("workspce")
    assert caught.value.hint == "did you mean `workspace`?"


def test_a_name_that_two_distributions_claim_is_an_error_naming_both(
    install: Install, installed: Installed
) -> None:
    install("other", distribution="first", package="pack_first")
    install("other", distribution="second", package="pack_second")
    with pytest.raises(ConfigInvalid) as caught:
        installed().locate("other")
    assert "`first`" in caught.value.message
    assert "`second`" in caught.value.message


def test_a_distribution_cannot_take_a_shipped_pack_s_name(install: Install, installed: Installed) -> None:
    install("workspace", distribution="evil", package="pack_evil")
    _, package = installed().locate("workspace")
    assert package == "packhost_packs.workspace"


def test_a_distribution_without_a_manifest_is_an_error(install: Install, installed: Installed) -> None:
    (install("other", listed=False) / "pack.yaml").unlink()
    with pytest.raises(ManifestInvalid, match="has no `pack_other/pack\\.yaml`"):
        installed().locate("other")


def test_a_manifest_of_another_pack_is_an_error(
    install: Install, installed: Installed, manifest_text: Callable[..., str]
) -> None:
    install("other", manifest=manifest_text("another"))
    _, (problem,) = find_packs([enabled("other")], installed())
    assert "whose id is `another`" in problem.message


def test_one_bad_pack_does_not_take_the_others_down(install: Install, installed: Installed) -> None:
    install("bad", manifest="packhost: 1\nid: bad\n")
    install("good")
    found, problems = find_packs([enabled("bad"), enabled("good"), enabled("none")], installed())
    assert [pack.manifest.id for pack in found] == ["good"]
    assert {problem.pack for problem in problems} == {"bad", "none"}


def test_a_control_tool_of_an_installed_pack_is_an_error(
    install: Install, installed: Installed, manifest_text: Callable[..., str]
) -> None:
    install("other", manifest=manifest_text("other") + "    control: true\n")
    found, (problem,) = find_packs([enabled("other")], installed())
    assert (found, problem.code) == ((), "MANIFEST_INVALID")


def test_a_folder_that_takes_an_installed_pack_s_name_is_an_error_naming_both(
    install: Install,
    installed: Installed,
    open_workspace: Callable[..., Workspace],
    pack_folder: Callable[..., Path],
) -> None:
    install("other")
    pack_folder("other")
    workspace = open_workspace("packs: [other, {path: ./other}]\n", installed())
    found, (problem,) = find_packs(workspace.enabled(), installed())
    assert found == ()
    assert "the package `pack_other`" in problem.message
    assert "the folder `./other`" in problem.message


def test_a_folder_that_takes_a_shipped_pack_s_name_is_left_out(
    installed: Installed, open_workspace: Callable[..., Workspace], pack_folder: Callable[..., Path]
) -> None:
    pack_folder("workspace")
    workspace = open_workspace("packs: [{path: ./workspace}, workspace]\n")
    found, problems = find_packs(workspace.enabled(), installed())
    assert ([pack.shipped for pack in found], len(problems)) == ([True], 1)


@pytest.mark.parametrize(
    ("trust", "contributes"),
    [(True, True), (False, False)],
)
def test_only_a_trusted_pack_contributes_hooks(
    install: Install, installed: Installed, trust: bool, contributes: bool
) -> None:
    install("other")
    ((pack,), _) = find_packs([enabled("other", trust=trust)], installed())
    assert pack.contributes is contributes


def test_changed_code_is_other_code(install: Install, installed: Installed) -> None:
    package = install("other")
    ((before,), _) = find_packs([enabled("other")], installed())
    (package / "__init__.py").write_text("changed = True\n")
    ((after,), _) = find_packs([enabled("other")], installed())
    assert before.code != after.code


@pytest.mark.parametrize("package", ["no_such_package", "no_such.inner", "sys", "json.decoder.deeper"])
def test_a_package_that_is_not_there_has_no_folder(package: str) -> None:
    assert package_folder(package) is None


def test_the_names_that_can_be_enabled_are_known(install: Install, installed: Installed) -> None:
    install("other")
    assert installed().names() == [*SHIPPED_PACKS, "other"]
