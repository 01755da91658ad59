"""The operations by name, and the control of a host in this very process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control import (
    audit,
    authorization,
    changes,
    consent,
    console,
    evidence,
    grants,
    history,
    operator,
    people,
    questions,
    records,
    searching,
    store,
    tokens,
    tools,
    upstreams,
    webhooks,
)
from packhost.control.base import Operation, Parts
from packhost.errors import NotFound
from packhost.names import nearest


async def _act(parts: Parts, params: Mapping[str, Any]) -> Any:
    return await console.act(parts, params, OPERATIONS)


OPERATIONS: Mapping[str, Operation] = {
    "status": consent.status,
    "accept.changes": consent.changes,
    "accept.apply": consent.apply,
    "auth.examine": authorization.examine,
    "tools.list": tools.listing,
    "tools.show": tools.show,
    "packs.list": tools.packs,
    "call": tools.call,
    "explain": tools.explain,
    "approvals.list": people.approvals_list,
    "approvals.show": people.approvals_show,
    "approvals.preview": searching.approvals_preview,
    "approvals.decide": people.approvals_decide,
    "questions.list": questions.listing,
    "questions.show": questions.show,
    "questions.answer": questions.answer,
    "grants.offer": grants.offer,
    "grants.list": grants.listing,
    "grants.show": grants.show,
    "grants.revoke": grants.revoke,
    "grants.propose": grants.proposed,
    "grants.accept": grants.accept,
    "operator.show": operator.show,
    "operator.set": operator.replace,
    "operator.remove": operator.remove,
    "tokens.new": tokens.new,
    "tokens.plan": tokens.planned,
    "tokens.list": tokens.listing,
    "tokens.revoke": tokens.revoke,
    "sessions.list": people.sessions_list,
    "sessions.show": people.sessions_show,
    "sessions.raise": people.sessions_raise,
    "sessions.lower": people.sessions_lower,
    "runs.list": records.runs_list,
    "runs.show": records.runs_show,
    "runs.events": records.runs_events,
    "runs.trace": evidence.runs_trace,
    "runs.pause": records.runs_pause,
    "runs.resume": records.runs_resume,
    "runs.abort": records.runs_abort,
    "calls.recorded": history.calls_recorded,
    "audit.head": audit.head,
    "audit.verify": audit.verify,
    "audit.search": searching.audit_search,
    "audit.event": searching.audit_event,
    "audit.join": audit.join,
    "audit.redact": audit.redact_event,
    "audit.export": audit.export,
    "changes.wait": changes.wait,
    "console.opened": changes.console,
    "console.door": console.door,
    "console.nonce": console.nonce,
    "console.ticket": console.ticket,
    "console.login": console.login,
    "console.enter": console.enter,
    "console.leave": console.leave,
    "console.sessions": console.sessions,
    "console.passkeys": console.passkeys,
    "console.passkeys.add": console.passkeys_add,
    "console.passkeys.remove": console.passkeys_remove,
    "console.act": _act,
    "upstreams.list": upstreams.listing,
    "upstreams.logs": upstreams.logs,
    "webhooks.list": webhooks.listing,
    "webhooks.show": webhooks.show,
    "webhooks.test": webhooks.test,
    "webhooks.retry": webhooks.retry,
    "store.info": store.info,
    "store.kept": store.kept,
    "store.prune": store.prune_old,
}


class LocalControl:
    """Runs operations on a host in this process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def request(self, op: str, params: dict[str, Any]) -> Any:
        """Run one operation.

        :raises NotFound: when there is no operation of that name.
        :raises PackhostError: as the operation does.
        """
        operation = OPERATIONS.get(op)
        if operation is None:
            near = nearest(op, OPERATIONS, 1)
            raise NotFound(
                f"there is no operation `{op}`",
                hint=f"did you mean `{near[0]}`?"
                if near
                else "use the same version of packhost on both sides",
            )
        return await operation(self._parts, params)
