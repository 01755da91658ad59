"""What a page of the console is made of: a view shows, an action changes, both for one visit.

A view is `async def view(visit: Visit) -> Shown`, an action `async def act(visit: Visit) -> Moved`. Before
either is called the frame has checked host, session, right, origin and CSRF token; it turns a `PackhostError`
into a page or a notice, so views and actions let it pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from packhost.console.proving import Proof
from packhost.control.base import Control
from packhost.control.console import RIGHTS
from packhost.errors import InvalidInput, PackhostError
from packhost.rules.identities import Right, Role

BASE: Final = "/console"
Mark = Literal["done", "failed"]
CHANNEL: Final = "console"
CLIENT: Final = "packhost-console"


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: a template below `templates/`, and what it is filled with."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """Where an action leads: a path of the console such as `/runs`, with a notice of one line there."""

    path: str
    notice: str = ""
    mark: Mark = "done"


@dataclass(frozen=True, slots=True)
class Sent:
    """A file to download."""

    body: bytes
    name: str
    media_type: str = "application/json"


class Form:
    """What a form sent: every value is text."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = list(pairs)

    @classmethod
    def of(cls, body: bytes) -> Form:
        """Read `application/x-www-form-urlencoded`; raises `InvalidInput`."""
        try:
            text = body.decode("ascii")
            return cls(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=2_000))
        except ValueError:
            raise InvalidInput("the form cannot be read", hint="send it again from its page") from None

    def get(self, name: str, default: str = "") -> str:
        """The last value of that name; a text area's line ends are `\\n`."""
        found = next((value for key, value in reversed(self._pairs) if key == name), default)
        return found.replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        """Every value of that name."""
        return [value for key, value in self._pairs if key == name]

    def below(self, prefix: str) -> dict[str, str]:
        """The values of the names that begin so, by the rest of the name."""
        names = {key for key, _ in self._pairs if key.startswith(prefix)}
        return {name.removeprefix(prefix): self.get(name) for name in names}

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self._pairs)


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who is signed in; `session` is the id of their session, which is no secret."""

    principal: str
    role: Role
    scopes: frozenset[str]
    session: str
    way: str

    def may(self, right: Right) -> bool:
        """Whether it is theirs to do."""
        return right in self.scopes


@dataclass(frozen=True, slots=True)
class Visit:
    """One request by somebody who is signed in.

    `path` are the parts of the address in braces. `waiting` is how many questions wait for a person,
    `operator` is `none` where no passphrase was set up, else `ready` or `lost`. `passkeys` are those that can
    be used under the name `host`, by which the console was reached. `tools` are those asked for so far.
    """

    control: Control
    secret: str
    viewer: Viewer
    path: Mapping[str, str]
    query: Form
    form: Form
    proof: Proof
    host: str
    passkeys: tuple[str, ...]
    operator: Literal["none", "ready", "lost"]
    waiting: int
    head: int
    workspace: str
    tools: dict[str, Any] = field(default_factory=dict)

    async def ask(self, op: str, **params: Any) -> Any:
        """One operation of the host, done for who is signed in; its JSON. Raises `PackhostError`."""
        if self.proof.asks and not RIGHTS.get(op, "").endswith(":read"):
            raise PackhostError("nothing is changed while a passkey is asked for", code="INVALID_INPUT")
        asked = {"session": self.secret, "op": op, "params": params}
        if op != "tools.show":
            return await self.control.request("console.act", asked)
        name = str(params.get("tool"))
        if name not in self.tools:  # a page of many calls asks for few tools
            self.tools[name] = await self.control.request("console.act", asked)
        return self.tools[name]

    async def decide(
        self,
        approval: Mapping[str, Any],
        verdict: Literal["approve", "deny"],
        reason: str = "",
        always: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer an approval as `approvals.show` gave it; with `always` (`only`, `any`, `expires_in`, `uses`)
        like calls are allowed from then on. Where there is an operator, approving is signed by them.

        :raises PackhostError: as `approvals.decide` does, or when nothing proves that the operator answers.
        """
        params: dict[str, Any] = {
            "id": approval["id"],
            "verdict": verdict,
            "reason": reason,
            "channel": CHANNEL,
        }
        if always is not None:
            params["always"] = dict(always)
        if verdict == "approve" and self.operator != "none":
            params["signed"] = await self.proof.decision(approval, verdict, reason, self.viewer.principal)
            if always is not None:
                asked = {name: always[name] for name in ("only", "any") if name in always}
                offer = await self.ask("grants.offer", id=approval["id"], **asked)
                params["always"]["signed"] = await self._granting(offer, always)
        self.proof.collected()
        return await self.ask("approvals.decide", **params)

    async def take_up(self, proposal: str, **terms: Any) -> Any:
        """Allow what `grants.propose` proposed, under `only`, `days`, `expires_in` and `uses`.

        :raises PackhostError: as `grants.accept` does, or when nothing proves that the operator does it.
        """
        params: dict[str, Any] = {"id": proposal, **terms}
        if self.operator != "none":
            # shown only, which needs no signature and changes nothing
            shown = {"session": self.secret, "op": "grants.accept", "params": {**params, "dry": True}}
            offer = await self.control.request("console.act", shown)
            params["signed"] = await self._granting(offer, terms)
        self.proof.collected()
        return await self.ask("grants.accept", **params)

    async def _granting(self, offer: Mapping[str, Any], terms: Mapping[str, Any]) -> dict[str, Any]:
        return await self.proof.grant(
            offer, terms.get("expires_in"), terms.get("uses"), self.viewer.principal
        )


View = Callable[[Visit], Awaitable[Shown | Moved | Sent]]
Act = Callable[[Visit], Awaitable[Moved | Shown]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page at `/console` and `path`, such as `/runs/{id}`; with a `label` it stands in the navigation.

    `key` is the letter that leads to it after `g`.
    """

    path: str
    view: View
    right: Right
    label: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """What a form is sent to, always by POST; who may not is refused before it is called."""

    path: str
    act: Act
    right: Right
