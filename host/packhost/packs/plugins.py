"""The hooks of shipped and trusted packs: imported into the host, and what they provide, by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeVar

from packhost.errors import PackhostError
from packhost.hookspecs import build_plugins
from packhost.kinds.base import Kind
from packhost.kinds.context import RunDriver
from packhost.kinds.providing import Announce, Provider
from packhost.kinds.record import TraceWriter
from packhost.manifest.problems import Problem, problem_of
from packhost.packs.discover import FoundPack
from packhost.workspace.secrets import SecretSource

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Provided:
    """What packs provide, by name; a pack whose hooks do not work is in `problems` and provides nothing."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    run_drivers: Mapping[str, RunDriver] = field(default_factory=dict)
    trace_writers: Mapping[str, TraceWriter] = field(default_factory=dict)
    secret_sources: Mapping[str, SecretSource] = field(default_factory=dict)
    providers: Mapping[str, Provider] = field(default_factory=dict)
    """What packs have beside their tools, by the pack's id."""
    problems: tuple[Problem, ...] = ()


def load_plugins(
    found: Iterable[FoundPack], own_kinds: Sequence[Kind] = (), announce: Announce = lambda _: None
) -> Provided:
    """Import the packages of contributing packs and gather what their hooks provide beside `own_kinds`.

    A name that is provided twice is a problem, and the first one stays.
    """
    problems: list[Problem] = []
    kinds: dict[str, Kind] = {kind.name: kind for kind in own_kinds}
    drivers: dict[str, RunDriver] = {}
    writers: dict[str, TraceWriter] = {}
    sources: dict[str, SecretSource] = {}
    providers: dict[str, Provider] = {}
    for pack in found:
        if not pack.contributes:
            continue
        name = pack.manifest.id
        try:
            hook = build_plugins([_imported(pack)]).hook
            _add(kinds, {kind.name: kind for one in hook.packhost_kinds() for kind in one}, name, problems)
            given = {driver.name: driver for one in hook.packhost_run_drivers() for driver in one}
            _add(drivers, given, name, problems)
            for one in hook.packhost_trace_writers():
                _add(writers, one, name, problems)
            for one in hook.packhost_secret_sources():
                _add(sources, one, name, problems)
            provider = hook.packhost_provider(announce=announce)
            _add(providers, {} if provider is None else {name: provider}, name, problems)
        except PackhostError as error:
            problems.append(problem_of(error, name))
        except (Exception, SystemExit) as error:  # a pack's own code: whatever it raises, the others go on
            message = f"the hooks of the pack `{name}` failed: {type(error).__name__}: {_line(error)}"
            problems.append(Problem("CONFIG_INVALID", message, "report it to the pack's author", pack=name))
    return Provided(kinds, drivers, writers, sources, providers, tuple(problems))


def _imported(pack: FoundPack) -> ModuleType:
    return importlib.import_module(pack.package or "")


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else "no message"


def _add(into: dict[str, T], new: Mapping[str, T], pack: str, problems: list[Problem]) -> None:
    for name, value in new.items():
        if name in into:
            message = f"the pack `{pack}` provides `{name}`, which is already there"
            problems.append(Problem("CONFIG_INVALID", message, "disable one of the two packs", pack=pack))
        else:
            into[name] = value
