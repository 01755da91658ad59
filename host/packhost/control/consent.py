"""Operations on what the workspace allows: what waits for consent, consent, and how things stand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from packhost.control.authorization import auth_json
from packhost.control.base import Parts, text
from packhost.control.operator import needed, signed_of
from packhost.errors import ConfigInvalid, ManifestInvalid
from packhost.manifest.problems import Problem, error_of
from packhost.rules.statements import consent_statement
from packhost.store.base import Reading
from packhost.store.ops import approvals, replicas
from packhost.store.ops.replicas import ReplicaRow
from packhost.workspace.observed import Observed
from packhost.workspace.root import CONFIG_FILE
from packhost.workspace.workspace import Workspace


async def changes(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What would become possible if `packhost.yaml` were accepted as it stands.

    Raises what accepting would for a broken file or pack, so that nobody is asked in vain.
    """
    from packhost.control import definitions  # a host that starts has no use for it yet

    workspace = parts.workspace
    workspace.reload()
    _refuse_faults(workspace.problems)
    found, waits = workspace.changes(), definitions.waiting(workspace)
    return {
        "pending": bool(found) or bool(waits) or workspace.consent is None,
        "changes": [{"text": change.text, "code": change.code} for change in found],
        "sources": {
            path: [asdict(change) for change in changes] for path, changes in workspace.pack_changes().items()
        },
        "definitions": [definitions.as_json(one) for one in waits],
        "digest": definitions.seen(workspace, waits),
        "problems": [str(problem) for problem in workspace.problems],
        "accepted_at": workspace.consent.at if workspace.consent else None,
        "accepted_by": workspace.consent.by if workspace.consent else None,
    }


def _refuse_faults(problems: Iterable[Problem]) -> None:
    manifests = [one for one in problems if one.code == "MANIFEST_INVALID"]
    faults = [one for one in problems if one.place is not None and one.place.file == CONFIG_FILE]
    if faults or manifests:
        raise error_of(ConfigInvalid if faults else ManifestInvalid, faults or manifests)


async def apply(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Accept exactly what was shown; `NOT_ACCEPTED` when it has changed since.

    Where there is an operator it needs their signature, which is kept with the record.
    """
    from packhost.control import definitions  # a host that starts has no use for it yet

    seen, by, signed = text(params, "digest"), text(params, "by", parts.principal), signed_of(params)
    if needed(parts):
        if signed is None:
            raise parts.gate.operators.missing("accepting needs an operator", "packhost accept")
        now = parts.store.now()
        said = consent_statement(workspace=parts.store.workspace, seen=seen, by=by, at=signed.at)
        parts.gate.operators.check(said, signed, now)
    workspace = parts.workspace
    workspace.reload()
    waits = definitions.waiting(workspace)
    # without what a server says now, when that is not what was shown: as `init` and `adopt` accept
    taken = waits if seen != workspace.seen and seen == definitions.seen(workspace, waits) else ()
    before = definitions.write(taken)
    try:
        workspace.accept(
            by=by,
            channel=text(params, "channel", "cli"),
            seen=seen,
            signed=(signed.at, signed.signature) if signed is not None and needed(parts) else None,
        )
    except BaseException:
        definitions.restore(before)
        raise
    definitions.settle(workspace, taken)
    await parts.changed()
    return {"accepted": True}


async def status(parts: Parts, params: Mapping[str, Any]) -> Any:
    """How the workspace stands."""
    return status_json(parts)


def _live(tx: Reading) -> tuple[ReplicaRow, ...]:
    now = tx.now()
    return tuple(row for row in replicas.listing(tx) if row.lease_until > now)


def _unlike(rows: Iterable[ReplicaRow]) -> Iterator[str]:
    """That hosts which share a store accepted different files: a call may be let through by one alone."""
    accepted: dict[str, list[str]] = {}
    for row in rows:
        accepted.setdefault(row.settings_sha, []).append(f"process {row.pid} on `{row.host}`")
    if len(accepted) > 1:
        parties = " and ".join(", ".join(names) for names in accepted.values())
        yield f"hosts that share the store have accepted different configurations: {parties}"


def _other_words(workspace: Workspace) -> Iterator[str]:
    """That servers say other things of themselves than were accepted: what changed is withheld."""
    enabled = {pack.id for pack in workspace.enabled()}
    for pack in Observed(workspace.root.state).packs():
        if pack in enabled:
            yield f"the server of `{pack}` says other things than were accepted: `packhost accept` shows them"


def status_json(parts: Parts) -> dict[str, Any]:
    """How the workspace stands: consent, problems, tools, store, questions that wait."""
    workspace, configuration = parts.workspace, parts.configuration()
    operator = parts.gate.operators.standing()
    others = parts.store.read(_live)
    listed = configuration.catalog.listed()
    return {
        "workspace": str(workspace.root.path),
        "state": str(workspace.root.state),
        "accepted": workspace.consent is not None,
        "pending": [{"text": change.text, "code": change.code} for change in workspace.changes()],
        "problems": list(configuration.problems),
        "warnings": [*configuration.warnings, *_unlike(others), *_other_words(workspace)],
        "broken": str(workspace.broken) if workspace.broken else None,
        "host": {"pid": os.getpid()},
        "console": parts.consoles.url,
        "store": {"label": parts.store.label},
        "auth": auth_json(workspace.accepted.auth),
        "replicas": [
            {
                "id": row.id,
                "host": row.host,
                "pid": row.pid,
                "version": row.version,
                "started_at": row.started_at,
                "draining": row.draining,
                "accepted": row.settings_sha,
            }
            for row in others
        ],
        "operator": {"state": operator.state, "why": operator.why},
        "approvals_pending": len(parts.store.read(approvals.listing, "pending", 1_000)),
        "autonomy": {"default": configuration.autonomy.default, "maximum": configuration.autonomy.maximum},
        "enforcement": {"require": configuration.require},
        "tools": [entry.tool.id.canonical for entry in listed],
        "withheld": [
            {"tool": held.tool, "layer": held.layer, "reason": held.reason}
            for held in configuration.catalog.withheld()
        ],
    }
