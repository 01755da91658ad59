"""How the person behind a client is reached: by a form in its dialog, or by a link that it opens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext

from packhost.gate.questions import PREFIX
from packhost.gate.types import Prompt
from packhost.server.callers import can_ask, can_link, is_modern, may_decide, of_end_user

FORM: Final[types.ElicitRequestedSchema] = {"type": "object", "properties": {}}
"""No field at all: accepting the form alone approves."""
_LINKED: Final = "2025-11-25"
"""The one version with sessions that knows links."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What a client can do for its person, and where the console is that a link leads to."""

    form: bool
    link: bool
    console: Callable[[], str | None]
    modern: bool = True
    decides: bool = True
    """Whether the client's word counts for a decision; what a tool asks may be filled in all the same."""
    end_user: bool = False
    """Whether an end user is behind it, whose word counts for what is theirs to approve alone."""

    @property
    def any(self) -> bool:
        """Whether there is a way at all."""
        return self.form or (self.link and self.console() is not None)

    def page(self, prompt: Prompt) -> str | None:
        """The console's page of a question that is put by a link; `None` where it is put by a form.

        A link is for what no form can prove, and for a client that knows no form. That a person agrees to
        open it decides nothing.
        """
        if not self.link or self._withholds(prompt) or prompt.form is not None or prompt.url is not None:
            return None
        url = self.console() if prompt.operator or not (self.form and self.decides) else None
        return None if url is None else f"{url}/console/approvals/{prompt.approval_id}"

    def _withholds(self, prompt: Prompt) -> bool:
        # a program of the same name may have asked first, and then the record speaks of no end user
        return prompt.withheld or (self.end_user and prompt.owner)

    def takes(self, id: str) -> bool:
        """Whether an answer of this client counts for a question of that id."""
        return self.decides or id.startswith(f"{PREFIX}_")

    def dialog(self, prompt: Prompt) -> bool:
        """Whether the client's own dialog answers a question, here and now."""
        return self.page(prompt) is None and self.request(prompt) is not None

    def request(self, prompt: Prompt) -> types.ElicitRequest | None:
        """The question as this client takes it; `None` where it cannot put this one."""
        page = self.page(prompt)
        url = page or (prompt.url if self.link else None)
        if url is not None:
            text = linked(prompt) if page else prompt.text
            id = None if self.modern else prompt.approval_id
            params = types.ElicitRequestURLParams(message=text, url=url, elicitation_id=id)
            return types.ElicitRequest(params=params)
        if not self.form or self._withholds(prompt) or not self.takes(prompt.approval_id):
            return None
        schema = FORM if prompt.form is None else dict(prompt.form)
        form = types.ElicitRequestFormParams(message=prompt.text, requested_schema=schema)
        return types.ElicitRequest(params=form)


def ways_of(ctx: ServerRequestContext[Any, Any], console: Callable[[], str | None]) -> Ways:
    """The ways to the person behind a request."""
    modern = is_modern(ctx)
    link = can_link(ctx) and (modern or ctx.protocol_version == _LINKED)
    return Ways(can_ask(ctx), link, console, modern, may_decide(ctx), of_end_user(ctx))


def linked(prompt: Prompt) -> str:
    """What a person reads before they open the page of a question."""
    return (
        f"{prompt.text}\nOpen the console to decide it there: opening the page approves nothing, and the "
        "call goes on once it is decided."
    )
