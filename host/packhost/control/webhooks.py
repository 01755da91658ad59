"""Operations on webhooks: how each endpoint fares, a test, and another try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control.base import Parts, optional, text, whole
from packhost.errors import InvalidInput, NotFound
from packhost.names import nearest
from packhost.store.ops import webhooks
from packhost.store.ops.webhooks import Delivery
from packhost.webhooks.telling import body_of


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Each webhook that was accepted, how it fares, and its deliveries: those first that were given up."""
    limit = whole(params, "limit", 5)
    found = []
    for name, hook in sorted(parts.workspace.accepted.webhooks.items()):
        standing = parts.store.read(webhooks.standing, name)
        found.append(
            {
                "name": name,
                "url": hook.url,
                "events": list(hook.events),
                "waiting": standing.waiting,
                "delivered": standing.delivered,
                "dead": standing.dead,
                "oldest_waiting": standing.oldest,
                "deliveries": [delivery_json(one) for one in parts.store.read(webhooks.listing, name, limit)],
            }
        )
    return {"webhooks": found}


async def show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One delivery with its body."""
    row = parts.store.read(webhooks.get, text(params, "id"))
    return {**delivery_json(row), "body": row.body}


async def test(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Have one webhook told of nothing but that it is told."""
    name = _known(parts, text(params, "name"))
    data = {"workspace": parts.store.workspace, "webhook": name}
    id = await parts.store.write(webhooks.test, name, body_of(webhooks.TEST, parts.store.now(), data))
    return delivery_json(parts.store.read(webhooks.get, id))


async def retry(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Try anew what was given up: one delivery by `id`, or all of the webhook `name`."""
    name, id = optional(params, "name"), optional(params, "id")
    if (name is None) == (id is None):
        raise InvalidInput("either a webhook or a delivery is tried anew", hint="give `name` or `id`")
    if id is not None:
        parts.store.read(webhooks.get, id)
    count = await parts.store.write(webhooks.retry, name and _known(parts, name), id)
    return {"again": count}


def _known(parts: Parts, name: str) -> str:
    hooks = parts.workspace.accepted.webhooks
    if name not in hooks:
        near = nearest(name, hooks, 1)
        hint = f"did you mean `{near[0]}`?" if near else "add it to `webhooks` in packhost.yaml and accept it"
        raise NotFound(f"there is no webhook `{name}`", hint=hint)
    return name


def delivery_json(row: Delivery) -> dict[str, Any]:
    """A delivery as people's programs read it."""
    return {
        "id": row.id,
        "webhook": row.hook,
        "type": row.type,
        "status": row.status,
        "attempts": row.attempts,
        "next_at": row.next_at if row.status == "waiting" else None,
        "answered": row.answered,
        "error": row.error,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
