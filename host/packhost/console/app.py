"""The console as an ASGI application: what is checked before a page is shown, and in which order.

The name by which it was reached; for a POST, its origin; who is signed in; the form's CSRF token; what they
may do. Then a view shows or an action changes, by operations of the host that look at the session once more.
"""

from __future__ import annotations

import gzip
import hmac
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from packhost.console.account import account
from packhost.console.assets import Assets, packs
from packhost.console.entrance import Entrance
from packhost.console.guard import (
    BODY,
    COOKIE,
    HEADERS,
    Attempts,
    cookie,
    csrf_token,
    host_name,
    local_path,
    same_origin,
)
from packhost.console.holding import Keys, Notices
from packhost.console.kit import BASE, Action, Form, Moved, Page, Sent, Shown, Viewer, Visit
from packhost.console.live import Live
from packhost.console.pages.table import ACTIONS, PAGES
from packhost.console.proving import ChallengesWanted, Proof, answers_of
from packhost.console.render import environment
from packhost.console.routes import Found, Routes
from packhost.control.base import Control
from packhost.errors import InvalidInput, PackhostError
from packhost.kinds.egress import FETCHED

log = logging.getLogger("packhost.console")
_STATUS: Final = {
    "NOT_FOUND": 404,
    "TOOL_NOT_FOUND": 404,
    "POLICY_DENIED": 403,
    "INVALID_INPUT": 400,
    "LIMIT_EXCEEDED": 429,
    "STORE_UNAVAILABLE": 503,
}
_WORTH: Final = 1_024
"""Bytes from which on a page is compressed."""
_ASKS: Final = "x-packhost-passkey"
Own = Callable[[Scope], bool]


def own_name(root_hash: str) -> str:
    """The host name by which browsers keep a workspace's console apart from all else on this machine.

    Browsers lead every name below `localhost` to the machine itself, and share neither cookies nor passkeys
    between two of them.
    """
    return f"packhost-{root_hash[:12]}.localhost"


class Console:
    """The console of one host, reached through `control`.

    `name` is the host name of its own by which browsers keep it apart from everything else on this machine.
    `own` says whether a request comes from a process of the account that runs the host: others can sign in
    by a token alone.
    """

    def __init__(
        self,
        control: Control,
        name: str,
        *,
        own: Own = lambda scope: True,
        clock: Callable[[], float] = time.monotonic,
        pages: tuple[Page, ...] = PAGES,
        actions: tuple[Action, ...] = ACTIONS,
    ) -> None:
        self._control = control
        self._name = name
        self._own = own
        self._assets = Assets()
        self._keys, self._notices = Keys(clock), Notices()
        self._live = Live(control)
        self._attempts = Attempts(clock)
        self._env = environment()
        self._env.globals["asset"] = self._assets.address
        self._entrance = Entrance(control, self._keys, self._attempts)
        own_pages, own_actions = account(control, self._keys)
        self._pages = (*pages, *own_pages)
        self._views = Routes([(page.path, page) for page in self._pages])
        self._actions = Routes([(action.path, action) for action in (*actions, *own_actions)])

    def warm(self) -> None:
        """Read every template, which else the first look at a page waits for; may run in a thread."""
        for name in self._env.list_templates():
            self._env.get_template(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        if type(response) is Response and len(response.body) > _WORTH and packs(request.headers):
            _pack(response)
        for header, value in HEADERS.items():
            response.headers.setdefault(header, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        name = host_name(request.headers, self._name)
        if name is None:
            return Response("this console is not reached by that name\n", 421, media_type="text/plain")
        if FETCHED in request.headers:
            return Response("a handler's fetch is no person\n", 403, media_type="text/plain")
        path = request.scope["path"].removeprefix(BASE) or "/"
        if request.method not in ("GET", "HEAD", "POST"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD, POST"})
        if path.startswith("/static/") and request.method != "POST":
            return self._assets.answer(path.removeprefix("/static/"), request.headers) or self._gone(None)
        try:
            if request.method == "POST" and not same_origin(request.headers):
                raise PackhostError(
                    "the form does not come from a page of this console",
                    code="POLICY_DENIED",
                    hint="open the console itself, and send it from there",
                )
            if path == "/login" or path.startswith("/login/"):
                return await self._enter(request, path, name)
            return await self._visited(request, path, name)
        except PackhostError as error:
            return self._failed(None, error)
        except Exception:
            log.exception("a page of the console failed")
            fault = PackhostError("packhost met a fault of its own", code="TOOL_FAILED", hint="see its log")
            return self._failed(None, fault)

    # before anybody is signed in

    async def _enter(self, request: Request, path: str, name: str) -> Response:
        own = self._own(request.scope)
        if request.method != "POST":
            where = local_path(request.query_params.get("next", ""), BASE) or f"{BASE}/"
            return self._page(None, Shown("login.html", await self._entrance.shown(name, own, where)))
        if path == "/login/challenge":
            return JSONResponse(await self._entrance.challenge(name, own))
        form = Form.of(await _body(request))
        where = local_path(form.get("next"), BASE) or f"{BASE}/"
        try:
            entered = await self._entrance.enter(form, own)
        except PackhostError as error:
            values = await self._entrance.shown(name, own, where)
            wait = error.data.get("retry_after")
            shown = Shown("login.html", {**values, "problem": error}, _STATUS.get(error.code, 403))
            return self._page(None, shown, {"Retry-After": str(wait)} if wait else {})
        # a new session each time: what was signed in before in this browser ends
        if (former := request.cookies.get(COOKIE)) is not None:
            await self._sign_out(former)
        headers = {"Set-Cookie": cookie(entered.secret, entered.lasts)}
        return RedirectResponse(where, 303, headers=headers)

    async def _sign_out(self, secret: str) -> None:
        try:
            left = await self._control.request("console.leave", {"session": secret})
        except PackhostError:
            return
        self._keys.lock(left["id"])

    # for who is signed in

    async def _visited(self, request: Request, path: str, name: str) -> Response:
        secret = request.cookies.get(COOKIE, "")
        try:
            idle = path == "/live" or "x-packhost-live" in request.headers
            whose = await self._control.request("console.enter", {"session": secret, "idle": idle})
        except PackhostError as error:
            if not error.data.get("signed_out"):
                raise
            return self._strange(request, error)
        if whose["way"] != "foreign-token" and not self._own(request.scope):
            raise PackhostError(
                "this session is for processes of the account that opened it",
                code="POLICY_DENIED",
                hint="sign in with a token",
            )
        if path == "/live":
            after = request.headers.get("last-event-id") or request.query_params.get("after", "")
            return self._live.stream(secret, int(after) if after.isdecimal() else whose["head"])
        if path == "/leave" and request.method == "POST":
            _check_csrf(Form.of(await _body(request)), secret)
            await self._sign_out(secret)
            return RedirectResponse(f"{BASE}/login", 303, headers={"Set-Cookie": cookie("", 0)})
        routes: Routes[Any] = self._actions if request.method == "POST" else self._views
        found = routes.find(_raw(request.scope))
        form = Form.of(await _body(request)) if request.method == "POST" else Form()
        visit = self._visit(request, secret, whose, found, form, name)
        return await (self._act if request.method == "POST" else self._show)(request, visit, found)

    def _strange(self, request: Request, error: PackhostError) -> Response:
        if request.method == "POST" or request.scope["path"] == f"{BASE}/live":
            return self._failed(None, error, 401)
        query = f"?{request.url.query}" if request.url.query else ""
        if COOKIE not in request.cookies and request.headers.get("sec-fetch-site") == "cross-site":
            # a link on another site: the cookie comes along once this page itself leads there
            return self._page(None, Shown("again.html", {"here": f"{request.scope['path']}{query}"}))
        page = Request(request.scope).url.include_query_params(next=f"{request.scope['path']}{query}").query
        wanted = [part for part in page.split("&") if part.startswith("next=")][-1]
        headers = {"Set-Cookie": cookie("", 0)} if COOKIE in request.cookies else {}
        return RedirectResponse(f"{BASE}/login?{wanted}", 303, headers=headers)

    def _visit(
        self,
        request: Request,
        secret: str,
        whose: dict[str, Any],
        found: Found[Any] | None,
        form: Form,
        name: str,
    ) -> Visit:
        viewer = Viewer(
            whose["principal"], whose["role"], frozenset(whose["scopes"]), whose["id"], whose["way"]
        )
        return Visit(
            control=self._control,
            secret=secret,
            viewer=viewer,
            path=found.path if found is not None else {},
            query=Form(request.query_params.multi_items()),
            form=form,
            proof=Proof(
                whose["store"],
                answers=answers_of(form.get("passkey")),
                asks=request.method == "POST" and _ASKS in request.headers,
            ),
            host=name,
            passkeys=tuple(one["credential"] for one in whose["passkeys"] if one["rp_id"] == name),
            operator=whose["operator"],
            waiting=whose["waiting"],
            head=whose["head"],
            workspace=whose["workspace"],
        )

    async def _show(self, request: Request, visit: Visit, found: Found[Page] | None) -> Response:
        if found is None:
            return self._gone(visit)
        try:
            _check_right(visit, found.target)
            shown = await found.target.view(visit)
        except PackhostError as error:
            return self._failed(visit, error)
        return self._led(visit, shown)

    async def _act(self, request: Request, visit: Visit, found: Found[Action] | None) -> Response:
        _check_csrf(visit.form, visit.secret)
        if found is None:
            return self._gone(visit)
        try:
            _check_right(visit, found.target)
            await self._unlock(request, visit)
            return self._led(visit, await found.target.act(visit))
        except ChallengesWanted as wanted:
            return JSONResponse(
                {"challenges": wanted.challenges, "rp_id": visit.host, "allow": list(visit.passkeys)}
            )
        except PackhostError as error:
            back = local_path(visit.form.get("back"), BASE)
            if visit.proof.asks:
                return JSONResponse({"error": error.message, "hint": error.hint}, 400)
            if back is None or error.data.get("signed_out"):
                return self._failed(visit, error)
            said = f"{error.message}: {error.hint}" if error.hint else error.message
            self._notices.tell(visit.viewer.session, "failed", said)
            return RedirectResponse(back, 303)

    async def _unlock(self, request: Request, visit: Visit) -> None:
        """Give the form's proof the operator's key: by a passphrase that came along, or as it is unlocked."""
        passphrase, session = visit.form.get("passphrase"), visit.viewer.session
        if passphrase and visit.viewer.role == "operator" and not visit.proof.asks:
            own = self._own(request.scope)
            signer = await self._entrance.unsealed(passphrase, own)
            self._keys.keep(session, signer)
        visit.proof.signer = self._keys.use(session)

    # answers

    def _led(self, visit: Visit, to: Shown | Moved | Sent) -> Response:
        if isinstance(to, Shown):
            return self._page(visit, to)
        if isinstance(to, Sent):
            named = {"Content-Disposition": f'attachment; filename="{to.name}"'}
            return Response(to.body, headers=named, media_type=to.media_type)
        if to.notice:
            self._notices.tell(visit.viewer.session, to.mark, to.notice)
        return RedirectResponse(f"{BASE}{to.path}", 303)

    def _gone(self, visit: Visit | None) -> Response:
        return self._failed(
            visit, PackhostError("there is no such page", code="NOT_FOUND", hint="go back to the console")
        )

    def _failed(self, visit: Visit | None, error: PackhostError, status: int | None = None) -> Response:
        code = 500 if error.code == "TOOL_FAILED" else _STATUS.get(error.code, 409)
        wait = error.data.get("retry_after")
        headers = {"Retry-After": str(wait)} if wait else {}
        return self._page(visit, Shown("error.html", {"problem": error}, status or code), headers)

    def _page(self, visit: Visit | None, shown: Shown, headers: dict[str, str] | None = None) -> Response:
        values: dict[str, Any] = {"base": BASE, "visit": visit, "problem": None, **shown.values}
        if visit is not None:
            session = visit.viewer.session
            values.update(
                can=visit.viewer.may,
                csrf=csrf_token(visit.secret),
                nav=[page for page in self._pages if page.label and visit.viewer.may(page.right)],
                notices=self._notices.take(session),
                unlocked=self._keys.left(session),
                now=time.time(),
            )
        text = self._env.get_template(shown.template).render(values)
        return Response(text, shown.status, headers, "text/html")


def _pack(response: Response) -> None:
    if "content-encoding" not in response.headers:
        # nobody else's page can have this one asked for with the session's cookie, and so weigh guesses
        response.body = gzip.compress(response.body, 4)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
        response.headers["vary"] = "Accept-Encoding"


def _check_right(visit: Visit, target: Page | Action) -> None:
    if not visit.viewer.may(target.right):
        raise PackhostError(
            f"who is signed in as {visit.viewer.role} may not do this (`{target.right}`)",
            code="POLICY_DENIED",
            hint="sign in as an operator"
            if visit.viewer.role != "operator"
            else "use a token with that scope",
        )


def _check_csrf(form: Form, secret: str) -> None:
    if not hmac.compare_digest(form.get("csrf").encode(), csrf_token(secret).encode()):
        raise PackhostError(
            "the form belongs to another session", code="POLICY_DENIED", hint="load its page again"
        )


async def _body(request: Request) -> bytes:
    """A form, of bounded size; raises `InvalidInput`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise InvalidInput("only plain forms are read here", hint="send it from its page")
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY:
            raise InvalidInput(f"the form is longer than {BODY} bytes", hint="send less")
        pieces.append(piece)
    return b"".join(pieces)


def _raw(scope: Scope) -> str:
    raw = scope.get("raw_path")
    text = raw.decode("ascii", "replace").partition("?")[0] if raw else str(scope["path"])
    return text.removeprefix(BASE)
