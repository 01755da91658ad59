"""The shape of the tree: imports point down, modules and functions stay small, public names are explained."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import packhost
import packhost_packs

ROWS = (
    {"characters", "errors", "names", "shipped", "trace"},
    {"rules"},
    {"journal", "manifest"},
    {"workspace"},
    {"store"},
    {"sandbox"},
    {"kinds"},
    {"hookspecs"},
    {"api", "oauth", "packs"},
    {"gate"},
    {"executions", "webhooks"},
    {"server", "clients", "control", "telemetry"},
    {"http", "client", "console"},
    {"transports", "docgen"},
    {"app"},
    {"cli"},
    {"__main__"},
)
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}
HOST = Path(packhost.__file__).parent
PACKS = Path(packhost_packs.__file__).parent
MODULES = sorted(path for path in HOST.rglob("*.py") if path != HOST / "__init__.py")
PACK_MODULES = sorted(PACKS.rglob("*.py"))
EVERY = MODULES + PACK_MODULES
LINES, FUNCTION_LINES, SHARE = 400, 40, 0.95


def room(path: Path) -> str:
    return path.relative_to(HOST).parts[0].removesuffix(".py")


def imported(path: Path, package: str) -> set[str]:
    """Dotted names under `package` that a module imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            # what stands in the package itself is imported along with a part of it
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return {name for name in found if name.startswith(f"{package}.")}


def label(path: Path) -> str:
    return str(path.relative_to(PACKS if path.is_relative_to(PACKS) else HOST))


def test_every_room_has_its_row() -> None:
    assert {room(path) for path in MODULES} == RANK.keys()


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_down(path: Path) -> None:
    here = room(path)
    others = {name.split(".")[1] for name in imported(path, "packhost")} - {here}
    assert {name for name in others if RANK.get(name, 0) >= RANK[here]} == set()


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_the_host_knows_no_pack(path: Path) -> None:
    assert imported(path, "packhost_packs") == set()


@pytest.mark.parametrize("path", PACK_MODULES, ids=label)
def test_shipped_packs_use_the_public_api_alone(path: Path) -> None:
    assert {name.split(".")[1] for name in imported(path, "packhost")} <= {"api"}


def module_name(path: Path) -> str:
    base = PACKS if path.is_relative_to(PACKS) else HOST
    parts = (base.name, *path.relative_to(base).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = {module_name(path): path for path in EVERY}
    edges: dict[str, set[str]] = {}
    for name, path in known.items():
        targets = imported(path, "packhost") | imported(path, "packhost_packs")
        edges[name] = {t if t in known else t.rpartition(".")[0] for t in targets} & (known.keys() - {name})
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in edges[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in known:
        visit(name, ())


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_a_module_stays_small(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= LINES


def test_nearly_every_function_stays_small() -> None:
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in EVERY
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    short = sum(length <= FUNCTION_LINES for length in lengths)
    assert short / len(lengths) >= SHARE


@pytest.mark.parametrize("path", [p for p in EVERY if p.name == "__init__.py"], ids=label)
def test_a_package_exports_exactly_what_it_says(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    assert module.__doc__
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name)
    exported = list(getattr(module, "__all__", ()))
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_every_public_name_of_a_module_says_what_it_means(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
