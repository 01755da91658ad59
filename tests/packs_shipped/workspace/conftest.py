"""The workspace pack, run as the host runs it: by its manifest, against a broker."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest

from packhost.manifest.load import load_manifest
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox.paths import FileBroker
from packhost.shipped import shipped_manifest


@dataclass
class OnlyFiles:
    """As much of a context as this pack uses."""

    files: FileBroker


@dataclass
class Pack:
    """Calls a tool of the pack and holds its arguments and its result to their schemas."""

    root: Path
    descriptor: int
    bound: tuple[str, ...] = ("path read **", "path write **")

    def context(self, tool: str) -> OnlyFiles:
        spec = self.spec(tool)
        layers = [
            Layer("bound", tuple(map(parse_scope, self.bound))),
            Layer("manifest", tuple(parse_scope(str(scope)) for scope in spec.required_scopes)),
        ]
        return OnlyFiles(FileBroker(self.descriptor, layers))

    def spec(self, tool: str) -> Any:
        found = load_manifest(shipped_manifest("workspace")).tool(tool)
        assert found is not None
        return found

    def __call__(self, tool: str, **arguments: Any) -> Any:
        spec = self.spec(tool)
        jsonschema_rs.validator_for(spec.input_schema).validate(arguments)
        result = function(spec.target)(self.context(tool), arguments)
        if inspect.iscoroutine(result):
            result = anyio.run(finished, result)
        jsonschema_rs.validator_for(spec.output_schema).validate(result)
        return result

    def preview(self, tool: str, **arguments: Any) -> str:
        text: str = function(self.spec(tool).config["preview"])(self.context(tool), arguments)
        return text


def function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


async def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small workspace."""
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("import os\n\nprint('hello')\nprint('hello again')\n")
    (folder / "src" / "util.py").write_text("def twice(n):\n    return 2 * n\n")
    (folder / "README.md").write_text("# A project\n\nHello there.\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("hello\n")
    return folder


@pytest.fixture
def pack(root: Path) -> Iterator[Pack]:
    """The pack on that workspace, with everything in its bound."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield Pack(root, descriptor)
    os.close(descriptor)
