"""Which page and which action stands at which address."""

from __future__ import annotations

from typing import Final

from packhost.console.kit import Action, Page
from packhost.console.pages import approvals, audit, grants, overview, questions, runs, sessions, tools

PAGES: Final = (
    Page("/", approvals.inbox, "approvals:read", "Inbox", "i"),
    Page("/approvals", approvals.history, "approvals:read"),
    Page("/approvals/{id}", approvals.show, "approvals:read"),
    Page("/approvals/{id}/whole", approvals.whole, "approvals:read"),
    Page("/approvals/{id}/always", approvals.always, "grants:write"),
    Page("/questions/{id}", questions.show, "approvals:read"),
    Page("/runs", runs.listing, "runs:read", "Runs", "r"),
    Page("/runs/{id}", runs.show, "runs:read"),
    Page("/runs/{id}/trace", runs.download, "runs:read"),
    Page("/runs/{id}/events", runs.events, "runs:read"),
    Page("/runs/{id}/do/{what}", runs.confirm, "runs:write"),
    Page("/sessions", sessions.listing, "runs:read"),
    Page("/sessions/{id}", sessions.show, "runs:read"),
    Page("/tools", tools.listing, "tools:read", "Tools", "t"),
    Page("/tools/{tool}", tools.show, "tools:read"),
    Page("/grants", grants.listing, "grants:read", "Grants", "g"),
    Page("/audit", audit.search, "audit:read", "Audit", "a"),
    Page("/audit/export", audit.export, "audit:read"),
    Page("/audit/{id}", audit.event, "audit:read"),
    Page("/overview", overview.show, "tools:read", "Overview", "o"),
)
ACTIONS: Final = (
    Action("/approvals/{id}/decide", approvals.decide, "approvals:decide"),
    Action("/approvals/{id}/always", approvals.allow_always, "grants:write"),
    Action("/questions/{id}", questions.answer, "approvals:decide"),
    Action("/questions/{id}/decline", questions.decline, "approvals:decide"),
    Action("/runs/{id}/do/{what}", runs.steer, "runs:write"),
    Action("/sessions/{id}", sessions.change, "sessions:write"),
    Action("/tools/{tool}", tools.explain, "tools:read"),
    Action("/grants/{id}/revoke", grants.revoke, "grants:write"),
    Action("/proposals/{id}/accept", grants.accept, "grants:write"),
    Action("/audit", audit.verify, "audit:read"),
)
