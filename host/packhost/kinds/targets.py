"""Whether a handler is where a manifest says, found in the source without importing it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packhost.names import nearest

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")


def form_problems(target: str | None) -> list[str]:
    """What is wrong with the form of a `target`, a sentence each."""
    if not target:
        return ["a tool of kind `python` needs a `target`: the handler, written `module:function`"]
    if not _TARGET.match(target):
        return [f"`{target}` is not a handler: write `module:function`"]
    top = target.partition(":")[0].partition(".")[0]
    if top in sys.stdlib_module_names:
        return [f"the module `{top}` of `{target}` has the name of one of Python's own: choose another"]
    return []


def source_problems(target: str, folders: Sequence[Path]) -> list[str]:
    """What is wrong with a `target` whose module lies below one of the folders (a pack's, site-packages)."""
    problems = form_problems(target)
    if problems:
        return problems
    module, _, function = target.partition(":")
    source = _source(module, folders)
    if source is None:
        near = nearest(module, _modules(folders), 1)
        return [
            f"there is no module `{module}` in the pack" + (f": did you mean `{near[0]}`?" if near else "")
        ]
    try:
        names = _bound(ast.parse(source.read_bytes(), source.name))
    except (SyntaxError, ValueError, RecursionError, OSError) as error:
        return [f"the module `{module}` cannot be read as Python: {' '.join(str(error).split())}"]
    if function in names:
        return (
            [] if names[function] else [f"`{function}` of `{module}` has to take `context` and `arguments`"]
        )
    near = nearest(function, names, 1)
    return [f"`{module}` has no function `{function}`" + (f": did you mean `{near[0]}`?" if near else "")]


def _source(module: str, folders: Sequence[Path]) -> Path | None:
    relative = Path(*module.split("."))
    candidates = (
        folder / end for folder in folders for end in (relative.with_suffix(".py"), relative / "__init__.py")
    )
    return next((path for path in candidates if path.is_file()), None)


def _modules(folders: Sequence[Path]) -> list[str]:
    return [path.stem for folder in folders for path in folder.glob("*.py")]


def _bound(tree: ast.Module) -> dict[str, bool]:
    """Names bound at the top of a module, and whether a handler may be behind each."""
    names: dict[str, bool] = {}
    for statement in _statements(tree.body):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names[name] = _takes_two(statement.args)
            case ast.ClassDef(name=name):
                names[name] = True
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update((alias.asname or alias.name.partition(".")[0], True) for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
                names.update((node.id, True) for node in stored if isinstance(node.ctx, ast.Store))
    return names


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _takes_two(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    keywords_needed = any(default is None for default in arguments.kw_defaults)
    return needed <= 2 and (positional >= 2 or arguments.vararg is not None) and not keywords_needed
