"""The setting `webhooks` of `packhost.yaml`: whom to tell what of what happens."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from packhost.manifest.values import Flag, fault

HookName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
EventName = Literal[
    "approval.requested",
    "approval.decided",
    "question.asked",
    "question.answered",
    "run.paused",
    "run.interrupted",
    "run.completed",
    "run.failed",
    "run.aborted",
]
"""What a webhook can be told of."""


def checked_link(url: str) -> str:
    """An address of the web without a user, as it is; raises a fault for anything else."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.username or parts.password or parts.fragment or not url.isprintable():
        raise fault("the URL is no plain address of the web", "write `https://HOST/PATH`, without a user")
    return url


class WebhookSettings(BaseModel):
    """An endpoint that is told of what happens. A secret's value is never sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(checked_link)] = Field(
        description="Where each event is posted, as JSON."
    )
    events: tuple[EventName, ...] = Field(min_length=1, description="What it is told of.")
    secret: str = Field(
        min_length=1,
        description="The name of the secret that signs: `whsec_` and 24 bytes or more in base64.",
    )
    private: Flag = Field(
        default=False,
        description="Whether the address may be a private one or this machine's own, and plain http.",
    )
    preview: Flag = Field(
        default=True, description="Whether an approval's first line and what it would do are told."
    )
    console: Annotated[str, AfterValidator(checked_link)] | None = Field(
        default=None,
        description="The console's address as its readers reach it; left out, that of this machine.",
    )

    @model_validator(mode="after")
    def _encrypted(self) -> WebhookSettings:
        if self.url.startswith("http:") and not self.private:
            raise fault(
                "the URL is not encrypted", "write `https://…`, or `private: true` for an inner address"
            )
        return self
