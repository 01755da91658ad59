"""The endpoints of `/v1`, and the application that serves them."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from packhost.control.base import Parts
from packhost.http import catalog, events, people, questions, runs
from packhost.http.addresses import Addresses, Below
from packhost.http.auth import Authenticator
from packhost.http.cursors import Cursors
from packhost.http.envelopes import Envelope
from packhost.http.kit import Endpoint, Resource, Shared
from packhost.http.limits import FOR_MCP, Allowance, Limits
from packhost.http.openapi import document
from packhost.http.resource import metadata_route
from packhost.oauth.issuers import Issuers

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/runs",
        runs.start,
        "runs:write",
        "Start a run.",
        {200: Envelope, 202: Envelope},
        body=runs.Dispatch,
        headers=runs.DispatchHeaders,
        problems=(404, 409, 422, 501, 502, 503, 504),
        streams=True,
    ),
    Endpoint("GET", "/runs", runs.listing, "runs:read", "List runs.", {200: runs.Runs}, query=runs.RunsQuery),
    Endpoint(
        "GET",
        "/runs/{id}",
        runs.show,
        "runs:read",
        "Show a run with its calls and questions.",
        {200: runs.RunDetail},
        problems=(404,),
    ),
    Endpoint(
        "GET",
        "/runs/{id}/result",
        runs.result,
        "runs:read",
        "Read where a run stands, or wait for its end.",
        {200: Envelope},
        headers=runs.WaitHeaders,
        problems=(404,),
    ),
    Endpoint(
        "GET",
        "/runs/{id}/events",
        events.run_events,
        "runs:read",
        "Read a run's events, or follow them.",
        {200: events.Events},
        query=events.EventsQuery,
        headers=events.EventsHeaders,
        problems=(404, 410),
        streams=True,
    ),
    Endpoint(
        "POST",
        "/runs/{id}/pause",
        runs.pause,
        "runs:write",
        "Ask a run to pause.",
        {202: Envelope},
        body=runs.Steer,
        problems=(404, 409, 503),
    ),
    Endpoint(
        "POST",
        "/runs/{id}/resume",
        runs.resume,
        "runs:write",
        "Let a paused or interrupted run go on.",
        {200: Envelope, 202: Envelope},
        body=runs.Resume,
        headers=runs.WaitHeaders,
        problems=(404, 409, 503),
        streams=True,
    ),
    Endpoint(
        "POST",
        "/runs/{id}/abort",
        runs.abort,
        "runs:write",
        "End a run now.",
        {200: Envelope},
        body=runs.Steer,
        problems=(404, 409, 503),
    ),
    Endpoint(
        "POST",
        "/sessions/{id}/autonomy",
        people.autonomy,
        "sessions:write",
        "Give a session more or less autonomy.",
        {200: people.Session},
        body=people.Autonomy,
        problems=(404, 503),
    ),
    Endpoint(
        "GET",
        "/approvals",
        people.approvals_list,
        "approvals:read",
        "List questions to people.",
        {200: people.Approvals},
        query=people.ApprovalsQuery,
    ),
    Endpoint(
        "GET",
        "/approvals/{id}",
        people.approvals_show,
        "approvals:read",
        "Show a question.",
        {200: people.ApprovalDetail},
        problems=(404,),
    ),
    Endpoint(
        "POST",
        "/approvals/{id}/decide",
        people.approvals_decide,
        "approvals:decide",
        "Answer a question.",
        {200: people.Decided},
        body=people.Decision,
        problems=(404, 409, 503),
    ),
    Endpoint(
        "GET",
        "/questions",
        questions.listing,
        "approvals:read",
        "List what tools ask of people.",
        {200: questions.ToolQuestions},
        query=questions.QuestionsQuery,
    ),
    Endpoint(
        "GET",
        "/questions/{id}",
        questions.show,
        "approvals:read",
        "Show what a tool asks.",
        {200: questions.ToolQuestion},
        problems=(404,),
    ),
    Endpoint(
        "POST",
        "/questions/{id}/answer",
        questions.answer,
        "approvals:decide",
        "Give a tool what it asks for.",
        {200: questions.ToolQuestion},
        body=questions.ToolAnswer,
        problems=(404, 409, 503),
    ),
    Endpoint(
        "GET",
        "/grants",
        people.grants_list,
        "grants:read",
        "List what is always allowed.",
        {200: people.Grants},
        query=people.GrantsQuery,
    ),
    Endpoint(
        "POST",
        "/grants/{id}/revoke",
        people.grants_revoke,
        "grants:write",
        "Take a grant back.",
        {200: people.Grant},
        problems=(404, 409, 503),
    ),
    Endpoint(
        "GET", "/tools", catalog.tools_list, "tools:read", "List tools, also withheld.", {200: catalog.Tools}
    ),
    Endpoint(
        "GET",
        "/tools/{tool}",
        catalog.tools_show,
        "tools:read",
        "Show a tool.",
        {200: catalog.ToolDetail},
        problems=(404,),
    ),
    Endpoint("GET", "/packs", catalog.packs_list, "tools:read", "List packs.", {200: catalog.Packs}),
    Endpoint(
        "POST",
        "/explain",
        catalog.explain,
        "tools:read",
        "Say what would happen to a call; nothing runs.",
        {200: catalog.Explained},
        body=catalog.Explanation,
        problems=(404, 503),
    ),
    Endpoint(
        "GET",
        "/audit/head",
        catalog.audit_head,
        "audit:read",
        "Read the end of the audit chain.",
        {200: catalog.AuditHead},
        problems=(503,),
    ),
    Endpoint("GET", "/status", catalog.status, "tools:read", "See how things stand.", {200: catalog.Status}),
)


class Api:
    """What the HTTP transport mounts, and asks who calls."""

    def __init__(
        self,
        parts: Parts,
        key: bytes,
        version: str,
        *,
        allowance: Allowance | None = None,
        issuers: Issuers | None = None,
    ) -> None:
        """`key` seals cursors: the same for every replica of a workspace."""
        self.authenticator = Authenticator(parts.store, issuers)
        self._shared = Shared(parts, self.authenticator, Cursors(key), Limits(allowance))
        self.of_mcp = Limits(FOR_MCP if allowance is None else allowance)
        """What the doors of MCP hold whoever comes with a token to."""
        self._version = version

    def routes(self) -> list[BaseRoute]:
        """Everything below `/v1`, and what clients learn of it before they have a token."""
        paths: dict[str, list[Endpoint]] = {}
        for endpoint in ENDPOINTS:
            paths.setdefault(endpoint.path, []).append(endpoint)
        unknown = Resource(self._shared)
        # a path's own methods are told apart by its resource, which asks first who it is
        inner = [Route("/openapi.json", endpoint=self._document)]
        inner += [Route(path, endpoint=Resource(self._shared, found)) for path, found in paths.items()]
        router = Addresses(inner, unknown)
        metadata = metadata_route(lambda: self.authenticator.settings)
        return [Route("/v1", endpoint=unknown), Below("/v1", router), metadata]

    async def _document(self, request: Any) -> Response:
        text = json.dumps(document(ENDPOINTS, self._version), ensure_ascii=False)
        return Response(text, media_type="application/json")


def build_api(parts: Parts, key: bytes, version: str) -> Api:
    """The API of a running host."""
    return Api(parts, key, version, issuers=Issuers(lambda: parts.workspace.accepted.auth))
