"""Names that the workspace gives tools towards clients: never one that another tool has, or is taken for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packhost.kinds.base import Tool
from packhost.manifest.problems import Problem
from packhost.names import alike, nearest

_ALL = "`packhost tools list --all` shows what there is"


def renamed(
    tools: Mapping[str, Tool], names: Mapping[str, str]
) -> tuple[dict[str, Tool], tuple[Problem, ...], tuple[Problem, ...]]:
    """The tools with their names, what kept a name out, and names of tools that there are not.

    A tool whose name cannot be given keeps its own. Its own name is nobody else's, also while it has another.
    """
    own = {alike(tool.id.wire): tool.id.canonical for tool in tools.values()}
    out, refused, unknown = dict(tools), [], []
    for canonical, wire in names.items():
        if canonical not in tools:
            near = nearest(canonical, tools)
            hint = f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else _ALL
            message = f"`names`: `{canonical}` is not a tool of an enabled pack"
            unknown.append(Problem("CONFIG_INVALID", message, hint))
        elif (other := own.get(alike(wire), canonical)) != canonical:
            message = f"`names`: `{canonical}` cannot be called `{wire}`, which is the name of `{other}`"
            refused.append(Problem("CONFIG_INVALID", message, "give it a name that no tool has"))
        else:
            out[canonical] = replace(tools[canonical], alias="" if wire == tools[canonical].id.wire else wire)
    return out, tuple(refused), tuple(unknown)
