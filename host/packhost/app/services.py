"""What shipped packs may ask of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packhost.executions.offers import offer
from packhost.gate.configuration import Configuration
from packhost.gate.inline import checked
from packhost.kinds.assets import AssetService
from packhost.kinds.context import ApprovalService, OfferedTool, RunService, SessionService


class Services:
    """What shipped packs may ask of the host."""

    def __init__(
        self,
        runs: RunService,
        sessions: SessionService,
        approvals: ApprovalService,
        configuration: Callable[[], Configuration],
        assets: AssetService,
    ) -> None:
        self.runs = runs
        self.sessions = sessions
        self.approvals = approvals
        self.assets = assets
        self._configuration = configuration

    def described(self, name: str) -> OfferedTool | None:
        """A tool that this host lists, by its wire or canonical name."""
        entry = self._configuration().catalog.find(name)
        return None if entry is None or entry.uncovered is not None else offer(entry.tool)

    def section(self, pack: str) -> Mapping[str, Any]:
        """A pack's own section of `packhost.yaml`, as it was accepted."""
        return self._configuration().sections.get(pack, {})

    def check_inline(self, definitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Definitions of tools for one run, checked; see `HostServices.check_inline`."""
        return checked(definitions, self._configuration().catalog)
