"""Always allow: which grant covers a call, what a person would grant, and what the host proposes.

Only a person's command gives a grant. What it is given for is worked out here from the call itself, as it
would be decided now; nothing that an agent sends says what a grant covers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packhost.errors import InvalidInput, NotFound, PackhostError
from packhost.gate.answers import may_last
from packhost.gate.catalog import Entry
from packhost.gate.configuration import Configuration
from packhost.gate.evaluate import Evaluation, Stopped
from packhost.gate.hidden import fill
from packhost.gate.types import Caller, CallRequest, Given
from packhost.names import new_id
from packhost.rules.approvals import binding, canonical_json
from packhost.rules.grants import Grant, Pattern, adjusted, covers, exact_pattern, lexical, pattern_of, widest
from packhost.rules.proposals import Proposal, propose
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, grants
from packhost.store.rows import ApprovalRow, GrantRow, NewGrant

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a person would grant: the pattern, and what it leaves open, in words."""

    principal: str
    tool: str
    tool_version: str
    pattern: Pattern
    wide: tuple[str, ...]
    hidden: str
    note: str

    def as_json(self) -> dict[str, Any]:
        """The offer as it is shown and signed."""
        return {
            "principal": self.principal,
            "tool": self.tool,
            "tool_version": self.tool_version,
            "match": self.pattern.as_json(),
            "words": self.pattern.words(),
            "wide": list(self.wide),
        }

    def grant(self, by: str, now: float, expires_in: float | None, uses: int | None) -> NewGrant:
        """The grant itself."""
        return NewGrant(
            id=new_id("gr"),
            tool=self.tool,
            tool_version=self.tool_version,
            match_json=canonical_json(self.pattern.as_json()),
            created_by=by,
            principal=self.principal,
            expires_at=None if expires_in is None else now + expires_in,
            max_uses=uses,
            hidden=self.hidden or None,
            note=self.note,
        )


@dataclass(frozen=True, slots=True)
class Also:
    """A recorded call that a proposal would have covered though no approval of it counts for the proposal."""

    call_id: str
    arguments: Mapping[str, object]
    status: str
    started_at: float


class Granting:
    """Grants of one workspace."""

    def __init__(
        self,
        store: Store,
        key: bytes,
        configuration: Callable[[], Configuration],
        evaluate: Callable[[CallRequest], Evaluation | Stopped],
    ) -> None:
        self._store = store
        self._key = key
        self._configuration = configuration
        self._evaluate = evaluate

    def covering(self, evaluation: Evaluation | Stopped, principal: str) -> str | None:
        """The grant that answers for this call; `None` when a person must, or nothing can."""
        if (
            isinstance(evaluation, Stopped)
            or not evaluation.decision.grantable
            or not self._configuration().terms.always_allow
        ):
            return None
        tool, now = evaluation.entry.tool, self._now()
        rows = self._store.read(grants.for_tool, tool.id.canonical, now)
        if not rows:
            return None
        hidden = evaluation.entry.hidden
        given = {name: value for name, value in evaluation.facts.arguments.items() if name not in hidden}
        facts = replace(evaluation.facts, arguments=given)
        digest = self._hidden(evaluation.entry, evaluation.arguments)
        for row in rows:
            grant = _grant_of(row, evaluation.entry, principal)
            if grant is not None and covers(grant, facts, tool.version, now, digest):
                return row.id
        return None

    def offer(self, approval_id: str, only: Mapping[str, str], anything: Sequence[str]) -> Offer:
        """What `--always` would grant for a question that waits.

        :raises InvalidInput: `only` or `anything` does not fit the call.
        :raises PackhostError: the call cannot be granted for good, and why.
        """
        row = self._store.read(approvals.get, approval_id)
        self._allowed()
        if row.run_id is not None and not self._store.read(may_last, row.run_id):
            raise _never("its run was started so that nothing is allowed for good by it")
        entry = self._entry(row.tool)
        given = {name: value for name, value in row.arguments.items() if name not in entry.hidden}
        caller = Caller(row.principal, row.client, row.session_id, row.run_id)
        whole = Given("", "", entry.tool.version, {})  # what a person gave stands among the arguments
        found = self._evaluate(CallRequest(row.tool, given, caller, given=whole))
        if isinstance(found, Stopped):
            raise _never(f"the call would be refused by now: {found.refusal.message}")
        if self._binding(row, entry, found.arguments) != row.binding:
            raise _never("the tool or what the host fills in has changed since it was asked")
        reason = ungrantable(entry)
        if reason or found.decision.verdict != "ask" or not found.decision.grantable:
            raise _never(reason or "more than one person at a client must answer for it each time")
        resolved = {k: v for k, v in found.facts.arguments.items() if k not in entry.hidden}
        paths = path_names(entry)
        pattern = adjusted(exact_pattern(resolved), resolved, paths, only, anything)
        return self._offer(row.principal, entry, pattern, found.arguments, f"approval {row.id}")

    def accepted(self, proposal_id: str, days: int, only: Mapping[str, str]) -> Offer:
        """What a proposal would grant, narrowed by `only`.

        :raises NotFound: it is no longer proposed.
        """
        for proposal, _ in self.proposals(days):
            if proposal.id == proposal_id:
                entry = self._entry(proposal.tool)
                pattern = adjusted(proposal.pattern, None, path_names(entry), only)
                return self._offer(
                    proposal.principal,
                    entry,
                    pattern,
                    self._filled(entry, {}, proposal.principal),
                    f"proposal {proposal.id}",
                )
        raise NotFound(
            f"there is no proposal `{proposal_id}`", hint="see what is proposed: `packhost grants propose`"
        )

    def proposals(self, days: int) -> list[tuple[Proposal, tuple[Also, ...]]]:
        """What would have spared a person the approvals of the last days, and what else it would allow."""
        if not self._configuration().terms.always_allow:
            return []
        since = self._now() - days * DAY
        found: list[tuple[Proposal, tuple[Also, ...]]] = []
        for tool in self._store.read(approvals.tools_approved, since):
            entry = self._configuration().catalog.entries.get(tool)
            if entry is not None and not ungrantable(entry):
                found += self._of_tool(entry, since)
        return found

    def concerning(self, row: ApprovalRow, days: int) -> Proposal | None:
        """A proposal that would have covered this question too."""
        entry = self._configuration().catalog.entries.get(row.tool)
        if entry is None or row.status != "pending" or ungrantable(entry):
            return None
        if not self._configuration().terms.always_allow:
            return None
        given = self._given(entry, row)
        for proposal, _ in self._of_tool(entry, self._now() - days * DAY):
            if given is not None and proposal.principal == row.principal and proposal.pattern.holds(given):
                return proposal
        return None

    def _of_tool(self, entry: Entry, since: float) -> list[tuple[Proposal, tuple[Also, ...]]]:
        tool, paths = entry.tool, path_names(entry)
        rows = [
            row
            for row in self._store.read(approvals.of_tool, tool.id.canonical, since)
            if (row.assurance, row.approvers_needed) == ("client", 1)
            and self._binding(row, entry, self._filled(entry, row.arguments, row.principal)) == row.binding
        ]
        found = []
        for principal in sorted({row.principal for row in rows}):
            yes: list[dict[str, object]] = []
            no: list[dict[str, object]] = []
            used = set()
            for row in (row for row in rows if row.principal == principal):
                given = self._given(entry, row)
                if given is not None:
                    (yes if row.status == "approved" else no).append(given)
                    used.add(row.consumed_by)
            made = propose(principal, tool.id.canonical, tool.version, yes, no, paths)
            if made is not None and not self._standing(entry, principal, yes):
                found.append((made, self._also(entry, made.pattern, since, used)))
        return found

    def _standing(self, entry: Entry, principal: str, approved: Sequence[Mapping[str, object]]) -> bool:
        """Whether a live grant covers all of it already."""
        now = self._now()
        made = [
            _grant_of(row, entry, principal)
            for row in self._store.read(grants.for_tool, entry.tool.id.canonical, now)
        ]
        return any(
            grant is not None
            and grant.tool_version == entry.tool.version
            and grant.principal == principal
            and all(grant.pattern.holds(arguments) for arguments in approved)
            for grant in made
        )

    def _also(self, entry: Entry, pattern: Pattern, since: float, used: set[str | None]) -> tuple[Also, ...]:
        found = []
        for call in self._store.read(calls.of_tool, entry.tool.id.canonical, since):
            given = lexical(_without(call_arguments(call.args_json), entry), path_names(entry))
            if call.id not in used and given is not None and pattern.holds(given):
                found.append(Also(call.id, given, call.status, call.started_at))
        return tuple(found)

    @staticmethod
    def words(row: GrantRow) -> list[str]:
        """What a grant covers, for people."""
        try:
            return pattern_of(row.match).words()
        except (PackhostError, ValueError, AttributeError):
            return ["nothing: its pattern cannot be read"]

    def state_of(self, row: GrantRow) -> tuple[str, str]:
        """Whether a grant can still cover anything, in a word, and why not."""
        now = self._now()
        entry = self._configuration().catalog.entries.get(row.tool)
        if row.revoked_at is not None:
            return "revoked", ""
        if row.expires_at is not None and row.expires_at <= now:
            return "expired", ""
        if row.max_uses is not None and row.uses >= row.max_uses:
            return "used up", ""
        if entry is None:
            return "void", "its tool is not there"
        if entry.tool.version != row.tool_version:
            return "void", f"the tool is another by now: {entry.tool.version}, not {row.tool_version}"
        if not self._configuration().terms.always_allow:
            return "void", "`approvals.always_allow` is off"
        if self._hidden(entry, self._filled(entry, {}, row.principal or "")) != (row.hidden or ""):
            return "void", "what the host fills in is another by now"
        reason = ungrantable(entry)
        return ("void", reason) if reason else ("live", "")

    def _offer(
        self, principal: str, entry: Entry, pattern: Pattern, arguments: Mapping[str, Any], note: str
    ) -> Offer:
        tool = entry.tool
        return Offer(
            principal,
            tool.id.canonical,
            tool.version,
            pattern,
            tuple(widest(pattern, path_names(entry))),
            self._hidden(entry, arguments),
            note,
        )

    def _entry(self, tool: str) -> Entry:
        entry = self._configuration().catalog.entries.get(tool)
        if entry is None:
            raise _never(f"the tool `{tool}` is not there any more")
        return entry

    def _allowed(self) -> None:
        if not self._configuration().terms.always_allow:
            raise _never("`approvals.always_allow` is off in packhost.yaml")

    def _filled(self, entry: Entry, given: Mapping[str, Any], principal: str) -> dict[str, Any]:
        arguments = dict(_without(given, entry))
        fill(entry.hidden, arguments, self._configuration().variables, principal)
        return arguments

    def _given(self, entry: Entry, row: ApprovalRow) -> dict[str, object] | None:
        return lexical(_without(row.arguments, entry), path_names(entry))

    def _binding(self, row: ApprovalRow, entry: Entry, arguments: Mapping[str, Any]) -> str:
        return binding(
            self._key,
            workspace=self._store.workspace,
            principal=row.principal,
            client=row.client,
            run_id=row.run_id,
            tool=row.tool,
            tool_version=entry.tool.version,
            arguments=arguments,
        )

    def _hidden(self, entry: Entry, arguments: Mapping[str, Any]) -> str:
        """A keyed digest of the hidden arguments; empty where there are none."""
        found = {name: arguments[name] for name in sorted(entry.hidden) if name in arguments}
        if not found:
            return ""
        said = canonical_json(["packhost hidden 1", found]).encode("ascii")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()

    def _now(self) -> float:
        return self._store.now()


def path_names(entry: Entry) -> frozenset[str]:
    """The arguments that are paths, those at the top alone."""
    return frozenset(path[0] for path, _ in entry.tool.path_arguments if len(path) == 1)


def ungrantable(entry: Entry) -> str:
    """Why no grant can ever stand in for an answer about this tool; empty when one can."""
    if entry.tool.spec.control:
        return "it controls runs and sessions, which is asked each time"
    for approval in entry.required:
        if not approval.grantable:
            return f"the approval `{approval.name}` cannot be given for good"
        if approval.assurance == "operator":
            return f"the approval `{approval.name}` needs an operator each time"
        if approval.approvers > 1:
            return f"the approval `{approval.name}` needs two people each time"
    return ""


def terms_of(expires_in: object, uses: object) -> tuple[float | None, int | None]:
    """How long a grant is to hold, in seconds, and how often.

    :raises InvalidInput: they are no positive numbers.
    """
    if expires_in is not None and (
        isinstance(expires_in, bool) or not isinstance(expires_in, int | float) or not 0 < expires_in < 1e10
    ):
        raise InvalidInput("`expires_in` is not a number of seconds", hint="give a positive number")
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise InvalidInput("`uses` is not a whole number above 0", hint="give one, or leave it out")
    return (None if expires_in is None else float(expires_in)), uses


def _without(arguments: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in entry.hidden}


def call_arguments(args_json: str) -> dict[str, Any]:
    """A recorded call's arguments, as far as they were kept."""
    found = json.loads(args_json)
    return found if isinstance(found, dict) else {}


def _grant_of(row: GrantRow, entry: Entry, principal: str) -> Grant | None:
    """A stored grant as the rules read it; one for nobody in particular covers this principal."""
    try:
        pattern = pattern_of(row.match)
    except (PackhostError, ValueError, AttributeError):
        return None  # a pattern that cannot be read covers nothing
    return Grant(
        id=row.id,
        principal=row.principal or principal,
        tool=entry.tool.id,
        tool_version=row.tool_version,
        pattern=pattern,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        maximum_uses=row.max_uses,
        uses=row.uses,
        hidden=row.hidden or "",
    )


def _never(why: str) -> PackhostError:
    return PackhostError(
        f"it cannot be allowed for good: {why}",
        code="APPROVAL_MODE_UNSUPPORTED",
        hint="approve it once: leave `--always` out",
    )
