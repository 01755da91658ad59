"""What a handler's process is given, worked out from its tool's scopes and the layers that hold now.

Each scope that a tool declares counts only where every layer covers it. Files are not among what is given:
each use of one is the host's to answer.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from packhost.errors import PackhostError
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.worker import folder_of, import_paths
from packhost.rules.scopes import EnvScope, ExecScope, Layer, PathScope, env_use, exec_use, path_use
from packhost.sandbox.programs import closure

MEMORY = 1 << 30
"""Bytes of memory that a call may take."""
_SHARED = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/etc/mime.types")


def libraries(root: Path) -> tuple[str, ...]:
    """The interpreter, what is installed for it and what it loads: to be read, in every process.

    A folder that holds the workspace or a person's home is left out, whoever put it on the import path.
    """
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {path for path in (*sys.path, *import_paths(root)) if os.path.isabs(path)}
    known.add(os.path.join(sys.base_prefix, "lib"))
    kept = (root.resolve(), Path.home().resolve())
    found = {
        path for path in map(os.path.realpath, known) if not any(one.is_relative_to(path) for one in kept)
    }
    return (*sorted(found), *_SHARED, *_FILES)


def setup_of(
    tool: Tool, context: CallContext, root: Path, readable: Sequence[str], *, again: bool
) -> dict[str, Any]:
    """The first frame that a process gets; makes the folders that the tool declares and that are missing.

    `again` is for a process that serves several calls.
    """
    layers, folder = context.layers, folder_of(tool)
    environment = {"LANG": "C.UTF-8"}
    for scope in tool.scopes:
        match scope:
            case EnvScope(name) if name in os.environ and env_use(name, layers) is None:
                environment[name] = os.environ[name]
    programs, search = _programs(tool, layers)
    if search:
        environment["PATH"] = os.pathsep.join(search)
    scratch = _folders(tool, context, layers)
    if scratch is not None:
        environment["TMPDIR"] = str(root / scratch)
    limits = {"memory": 0, "data": MEMORY} if programs else {"memory": MEMORY}
    return {
        "root": str(root),
        "folder": folder,
        "module": (tool.spec.target or "").partition(":")[0],
        "environment": environment,
        "libraries": [*readable, *([] if folder is None else [folder])],
        "programs": programs,
        "limits": limits | {"cpu": 0 if again else math.ceil(tool.spec.timeout) + 1},
    }


def _programs(tool: Tool, layers: Sequence[Layer]) -> tuple[list[str], list[str]]:
    """The files behind the declared programs, and the folders in which their names are looked up."""
    files: dict[str, None] = {}
    folders: dict[str, None] = {}
    for scope in tool.scopes:
        if isinstance(scope, ExecScope) and exec_use(scope.program, layers) is None:
            found = shutil.which(scope.program)
            if found is not None:
                folders[os.path.dirname(found)] = None
                files |= dict.fromkeys(closure(found))
    return list(files), list(folders)


def _folders(tool: Tool, context: CallContext, layers: Sequence[Layer]) -> str | None:
    """Makes the declared folders; the first that may be written and read whole is the scratch folder."""
    scratch = None
    for scope in tool.scopes:
        match scope:
            case PathScope("write", glob) if glob.endswith("/**") and "*" not in glob[:-3]:
                folder = glob[:-3]
                with suppress(PackhostError):
                    context.files.make_directory(folder)
                inside = f"{folder}/scratch"
                if scratch is None and not any(path_use(way, inside, layers) for way in ("read", "write")):
                    scratch = folder
    return scratch
