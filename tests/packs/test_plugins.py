"""Hooks: what packs provide, and that a bad one is told and left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from packhost.errors import ConfigInvalid
from packhost.hookspecs import HOOKS, HookSpecs, build_plugins, hookimpl
from packhost.kinds.base import Kind
from packhost.packs.discover import EntryPoints, find_packs
from packhost.packs.plugins import load_plugins
from packhost.workspace.workspace import EnabledPack

Install = Callable[..., Path]
Installed = Callable[[], EntryPoints]

SOURCES = """\
from packhost.hookspecs import hookimpl

@hookimpl
def packhost_secret_sources():
    return {"vault": lambda name: name}
"""


def module(**hooks: Callable[..., object]) -> ModuleType:
    """A module with these hooks."""
    made = ModuleType("made_pack")
    for name, function in hooks.items():
        setattr(made, name, hookimpl(function))
    return made


def test_every_hook_has_a_sentence_and_its_prefix() -> None:
    assert HOOKS == (
        "packhost_kinds",
        "packhost_run_drivers",
        "packhost_trace_writers",
        "packhost_secret_sources",
        "packhost_provider",
    )
    sentences = [(getattr(HookSpecs, name).__doc__ or "").strip() for name in HOOKS]
    assert all(text.endswith(".") and "\n\n" not in text for text in sentences)


def test_what_a_module_provides_is_returned(named: Callable[[str], Kind]) -> None:
    manager = build_plugins([module(packhost_kinds=lambda: [named("special")])])
    assert [kind.name for given in manager.hook.packhost_kinds() for kind in given] == ["special"]


def test_each_manager_is_its_own(named: Callable[[str], Kind]) -> None:
    build_plugins([module(packhost_kinds=lambda: [named("special")])])
    assert build_plugins([]).hook.packhost_kinds() == []


def test_a_hook_that_does_not_exist_is_told_the_nearest_one() -> None:
    with pytest.raises(ConfigInvalid, match="`made_pack` provides `packhost_kind`") as caught:
        build_plugins([module(packhost_kind=lambda: [])])
    assert caught.value.hint == "did you mean `packhost_kinds`?"


def test_a_hook_of_another_form_is_an_error() -> None:
    with pytest.raises(ConfigInvalid, match="does not fit"):
        build_plugins([module(packhost_kinds=lambda surprise: [])])


def test_a_module_given_twice_is_an_error() -> None:
    made = module()
    with pytest.raises(ConfigInvalid, match="twice"):
        build_plugins([made, made])


@pytest.mark.parametrize(("trust", "sources"), [(True, {"vault"}), (False, set())])
def test_only_a_trusted_pack_is_imported_for_its_hooks(
    install: Install, installed: Installed, trust: bool, sources: set[str]
) -> None:
    install("other", code=SOURCES)
    found, _ = find_packs([EnabledPack("other", None, trust, ())], installed())
    provided = load_plugins(found)
    assert (set(provided.secret_sources), provided.problems) == (sources, ())


@pytest.mark.parametrize(
    "code",
    [
        "raise RuntimeError('broken')\n",
        "import no_such_module_anywhere\n",
        "raise SystemExit(3)\n",
        SOURCES.replace("packhost_secret_sources", "packhost_sources"),
        SOURCES.replace('{"vault": lambda name: name}', "1"),
        SOURCES.replace('return {"vault": lambda name: name}', "raise KeyError('x')"),
    ],
)
def test_a_pack_whose_hooks_fail_provides_nothing_and_the_others_go_on(
    install: Install, installed: Installed, code: str
) -> None:
    install("bad", code=code)
    install("good", code=SOURCES)
    found, _ = find_packs([EnabledPack(name, None, True, ()) for name in ("bad", "good")], installed())
    provided = load_plugins(found)
    assert set(provided.secret_sources) == {"vault"}
    assert [problem.pack for problem in provided.problems] == ["bad"]


def test_a_name_that_is_provided_twice_stays_the_first_one_s(install: Install, installed: Installed) -> None:
    install("first", code=SOURCES)
    install("second", code=SOURCES)
    found, _ = find_packs([EnabledPack(name, None, True, ()) for name in ("first", "second")], installed())
    provided = load_plugins(found)
    assert [problem.message for problem in provided.problems] == [
        "the pack `second` provides `vault`, which is already there"
    ]


def test_the_shipped_packs_write_the_runs_of_each_driver_as_traces(installed: Installed) -> None:
    found, _ = find_packs([EnabledPack("agent-runtime", None, True, ())], installed())
    provided = load_plugins(found)
    assert set(provided.run_drivers) == {"agent-runtime:turn", "agent-runtime:workflow"}
    assert (set(provided.trace_writers), provided.problems) == (set(provided.run_drivers), ())


def test_own_kinds_stay(named: Callable[[str], Kind]) -> None:
    kind = named("python")
    assert load_plugins([], [kind]).kinds == {"python": kind}
