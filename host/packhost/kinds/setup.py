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

import packhost
from packhost.errors import PackhostError
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.worker import folder_of
from packhost.rules.scopes import EnvScope, ExecScope, Layer, PathScope, env_use, exec_use, path_use
from packhost.sandbox.programs import closure

MEMORY = 1 << 30
"""Bytes of memory that a call may take."""
_SHARED = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/etc/mime.types")


def libraries(root: Path) -> tuple[str, ...]:
    """The interpreter, what is installed for it and what it loads: to be read, in every process.

    Folders on the import path that lie in the workspace are left out, unless they are the interpreter's own
    environment, and so are those that hold the workspace or a person's home, whoever put them there.
    """
    home, kept = os.path.realpath(os.path.expanduser("~")), os.path.realpath(root)
    own = [os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)]
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {os.path.join(sys.base_prefix, "lib"), *(path for path in sys.path if os.path.isabs(path))}
    found = {os.path.dirname(os.path.realpath(packhost.__file__)), *_SHARED, *_FILES}
    for path in map(os.path.realpath, paths):
        inside = _within(path, kept) and not any(_within(path, one) for one in own)
        if not inside and not any(_within(one, path) for one in (kept, home)):
            found.add(path)
    existing = {os.path.realpath(path) for path in found if os.path.exists(path)}
    return tuple(
        path for path in sorted(existing) if not any(_within(path, one) for one in existing - {path})
    )


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


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
            if found is not None and os.path.isabs(found):
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
