"""`explain`: the steps that a call would pass and the one that would stop it, in words."""

from __future__ import annotations

from packhost.gate.evaluate import Evaluation, Stopped
from packhost.gate.types import CallRequest, Step, Trace
from packhost.kinds.base import Describing
from packhost.rules.autonomy import Level
from packhost.rules.scopes import format_scope

_ORDER = ("resolve", "admit", "cover", "decide", "enforce")


def trace_of(
    request: CallRequest, found: Evaluation | Stopped, level: Level, grant_id: str | None = None
) -> Trace:
    """The trace of an evaluation."""
    if isinstance(found, Stopped):
        passed = _ORDER[: _ORDER.index(found.step)]
        steps = [Step(name, True, "passed") for name in passed]
        steps.append(Step(found.step, False, found.refusal.message, found.refusal.rule))
        tool = found.entry.tool.id.canonical if found.entry else request.tool
        return Trace(tool, tuple(steps), "refuse", found.refusal, None)
    return _passed(found, level, grant_id)


def _passed(found: Evaluation, level: Level, grant_id: str | None) -> Trace:
    entry, decision = found.entry, found.decision
    tool, spec = entry.tool, entry.tool.spec
    enforcement = entry.kind.enforcement(tool)
    scopes = ", ".join(f"`{format_scope(scope)}`" for scope in tool.scopes) or "none"
    layers = ", ".join(layer.name for layer in found.layers)
    steps = [
        Step("resolve", True, f"{tool.id.canonical} {tool.pack.version}, kind {spec.kind}"),
        Step("admit", True, f"the arguments fit the input schema ({len(found.arguments_json)} characters)"),
        Step("cover", True, f"scopes {scopes} hold in every layer: {layers}"),
    ]
    if found.asks and entry.form is not None:
        names = ", ".join(f"`{name}`" for name in sorted(entry.form.names))
        steps.append(Step("ask", True, f"a person gives {names} before anything is approved"))
    for reason in decision.reasons:
        steps.append(Step("decide", True, f"{decision.verdict}: {reason.text}", reason.place))
    steps.append(Step("enforce", True, f"level {enforcement}; session level {level}"))
    asks = decision.verdict == "ask" and grant_id is None
    if decision.verdict == "ask" and grant_id is not None:
        steps.append(Step("approve", True, f"the grant `{grant_id}` answers for it"))
    elif asks:
        names = ", ".join(f"`{named.name}`" for named in decision.approvals)
        who = "an operator" if decision.assurance == "operator" else "a person at any channel"
        detail = f"{who} must approve exactly this call, once" + (f" ({names})" if names else "")
        if decision.approvers > 1:
            detail += f"; {decision.approvers} different people"
        steps.append(Step("approve", True, detail))
    kind = "best-effort" if spec.idempotent else "mandatory, committed before the effect"
    steps.append(Step("intent", True, kind))
    does = f"{entry.kind.describe(spec)}; " if isinstance(entry.kind, Describing) else ""
    steps.append(Step("run", True, f"{does}at most {spec.timeout:g} s; nothing was run now"))
    return Trace(tool.id.canonical, tuple(steps), "ask" if asks else "allow", None, enforcement)
