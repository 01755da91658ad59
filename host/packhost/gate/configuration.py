"""One generation of everything that a decision depends on beside the call itself.

The composition root makes a new one when a configuration changes and the gate swaps it whole, so
that no call sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packhost.gate.catalog import Catalog
from packhost.kinds.providing import Provision
from packhost.rules.autonomy import Level
from packhost.rules.policy import Policy
from packhost.sandbox.level import Requirement
from packhost.workspace.redaction import Redactor, StreamRedactor


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, and how many calls of one tool a principal may make."""

    max_argument_bytes: int
    max_result_bytes: int
    calls_at_once: int = 256
    calls_per_minute: int = 12_000
    runs_at_once: int = 256
    """Runs of a principal, those within runs too."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a question stays open, in seconds, and what holds where nobody can be asked."""

    timeout: float
    unattended: Literal["hold", "reject"]
    always_allow: bool = True
    """Whether grants may be given, and those that were given count."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """The workspace's levels: what a new session starts at, and what none passes."""

    default: Level
    maximum: Level


@dataclass(frozen=True, slots=True)
class Configuration:
    """What holds now, both the accepted configuration and the file's, the stricter of the two."""

    catalog: Catalog
    policies: tuple[Policy, ...]
    limits: Limits
    autonomy: Autonomy
    terms: Terms
    require: Requirement
    variables: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]]
    """A pack's own section of the accepted configuration, by pack id."""
    resolve_secret: Callable[[str], str]
    redact: Callable[[str], str]
    root_path: str = ""
    """The root's real path, only to tell the relative spelling of an absolute one."""
    redacting: Callable[[], StreamRedactor] = lambda: StreamRedactor(Redactor())
    """As `redact`, for a text that comes in pieces."""
    provisions: Mapping[str, Provision] = field(default_factory=dict)
    """What packs have beside their tools, by pack id."""
    upstreams: frozenset[str] = frozenset()
    """The packs that have a server upstream."""
    problems: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())
    """What keeps nothing out but is likely a mistake."""
