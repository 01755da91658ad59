"""Packs and tools, and whether a call could run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from packhost.console.kit import Form, Shown, Visit
from packhost.console.pages.common import now
from packhost.console.views import forms, tools
from packhost.console.views.texts import moment, short, shown
from packhost.errors import InvalidInput, PackhostError


async def listing(visit: Visit) -> Shown:
    """Every pack with its tools, what is withheld, and what waits to be accepted."""
    packs = await visit.ask("packs.list")
    found = await visit.ask("tools.list", all=True)
    return Shown(
        "pages/packs.html",
        {
            "packs": tools.packs_of(packs, found),
            "problems": [shown(one) for one in packs["problems"]],
            "warnings": [shown(one) for one in packs["warnings"]],
            **await _pending(visit),
            "means": tools.ENFORCEMENT,
        },
    )


async def _pending(visit: Visit) -> dict[str, Any]:
    try:
        found = await visit.ask("accept.changes")
    except PackhostError as error:
        return {"changes": [], "with_code": False, "fault": error.message, "accepted": None, "sources": {}}
    changes, with_code = tools.changes_of(found)
    return {
        "changes": changes,
        "with_code": with_code,
        "fault": "",
        "accepted": moment(found["accepted_at"], now()),
        "sources": {shown(path): len(each) for path, each in found["sources"].items()},
    }


async def show(visit: Visit) -> Shown:
    """One tool, and the form that asks whether a call could run."""
    return await _shown(visit, Form())


async def _shown(visit: Visit, given: Form, **more: Any) -> Shown:
    found = await visit.ask("tools.show", tool=visit.path["tool"])
    schema = forms.fields_of(found["input_schema"])
    as_json = schema is None or (given.get("as") or visit.query.get("as")) == "json"
    filled = {name: given.get(name) for name in (f"f.{rest}" for rest in given.below("f."))}
    fields = forms.fields_of(found["input_schema"], filled) or ()
    errors: dict[str, str] = more.get("errors", {})
    session = (
        await visit.ask("sessions.list", limit=20) if visit.viewer.may("runs:read") else {"sessions": []}
    )
    return Shown(
        "pages/tool.html",
        {
            "detail": tools.detail_of(found),
            "schema": json.dumps(found["input_schema"], ensure_ascii=False, indent=2),
            "output": json.dumps(found["output_schema"], ensure_ascii=False, indent=2)
            if found["output_schema"]
            else "",
            "fields_shown": [replace(one, error=errors.get(one.name, "")) for one in fields],
            "as_json": as_json,
            "only_json": schema is None,
            "json": given.get("json") or "{}",
            "problem": more.get("problem", ""),
            "trace": more.get("trace"),
            "sessions": [
                {
                    "id": one["id"],
                    "said": f"{short(one['client'], 40)}, {one['level']}, {short(one['id'], 40)}",
                }
                for one in session["sessions"]
            ],
            "chosen": given.get("session"),
        },
    )


async def explain(visit: Visit) -> Shown:
    """What the gate would do with a call; nothing runs and nothing is recorded."""
    found = await visit.ask("tools.show", tool=visit.path["tool"])
    try:
        arguments, errors = _arguments(visit, found["input_schema"])
    except InvalidInput as error:
        return await _shown(visit, visit.form, problem=error.message)
    if errors:
        return await _shown(visit, visit.form, errors=errors, problem="Some fields need another look.")
    trace = await visit.ask(
        "explain", tool=found["tool"], arguments=arguments, of_session=visit.form.get("session")
    )
    return await _shown(visit, visit.form, trace=tools.trace_of(trace))


def _arguments(visit: Visit, schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    fields = forms.fields_of(schema)
    if fields is not None and visit.form.get("as") != "json":
        filled = forms.read(fields, {field.key: visit.form.get(field.key) for field in fields})
        return filled.values, filled.errors
    found = forms.read_json(visit.form.get("json"))
    if not isinstance(found, dict):
        raise InvalidInput("the arguments are an object", hint='such as {"path": "src/a.txt"}')
    return found, {}
