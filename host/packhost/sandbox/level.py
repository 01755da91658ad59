"""How strongly a call's scopes are enforced, and what is possible here.

`host`: a shipped pack's code, run in the host's process through the file broker. `kernel`: the operating
system refuses what lies outside. `partial`: it refuses some of it. `advisory`: the code is asked to use
the broker and nothing stops it from going around. `host` is not a rung of the ladder: a workspace's
`enforcement.require` speaks of packs that are not shipped, so `host` satisfies every requirement.
"""

from __future__ import annotations

from typing import Final, Literal

Enforcement = Literal["host", "kernel", "partial", "advisory"]
Requirement = Literal["kernel", "partial", "advisory"]

_STRENGTH: Final[dict[Enforcement, int]] = {"advisory": 0, "partial": 1, "kernel": 2, "host": 3}


def satisfies(level: Enforcement, require: Requirement) -> bool:
    """Whether a call enforced at `level` may run where the workspace asks for at least `require`."""
    return _STRENGTH[level] >= _STRENGTH[require]
