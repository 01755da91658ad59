"""The gate's first four steps, without effects: resolve, admit, cover, decide.

`evaluate` is what a call and `explain` share: it reads the catalogue, the session's level and the
file system's present shape, and returns either a refusal or everything that the later steps need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packhost.errors import PackhostError, ScopeDenied
from packhost.gate.catalog import Catalog, Entry
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text, whole_characters
from packhost.gate.hidden import fill, filled_by
from packhost.gate.inline import names_secrets
from packhost.gate.nearest import nearest_path
from packhost.gate.types import Caller, CallRequest, Refusal
from packhost.rules.autonomy import Level
from packhost.rules.policy import Decision, Facts, Policy, Reason, strictest
from packhost.rules.scopes import Access, Layer, coverage
from packhost.sandbox.level import Requirement, satisfies
from packhost.sandbox.paths import FileBroker
from packhost.workspace.redaction import brief, redact_json_text

_SECRETS = Refusal(
    "POLICY_DENIED",
    "the token does not have the scope `secrets:read`, and a runtime tool names a secret",
    "use a token that was made with `--scope secrets:read`",
)
_FAULTS = 5
"""So many faults of one call's arguments are told at once."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A call that may go on: admitted, covered and decided."""

    entry: Entry
    arguments: dict[str, Any]
    arguments_json: str
    layers: tuple[Layer, ...]
    files: FileBroker
    facts: Facts
    decision: Decision
    redact: Callable[[str], str]
    asks: bool = False
    """Whether a person is to give what is still missing of the arguments."""
    said: str = ""
    """Why the model says that it makes the call."""
    tool_use_id: str | None = None
    turn: int | None = None

    @property
    def display_json(self) -> str:
        """The arguments as they are recorded and shown: hidden and private ones and secrets redacted."""
        return _display(self.entry, self.arguments, self.arguments_json, self.redact)


def _display(entry: Entry, arguments: Mapping[str, Any], text: str, redact: Callable[[str], str]) -> str:
    shown = as_text(entry.shown(arguments)) if entry.hidden or entry.private else text
    return redact_json_text(shown, redact)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The step that stopped a call, and the refusal."""

    step: str
    refusal: Refusal
    entry: Entry | None = None
    display_json: str | None = None
    """The arguments as they are recorded, once they were admitted."""


def evaluate(
    request: CallRequest, configuration: Configuration, level: Level, root_descriptor: int
) -> Evaluation | Stopped:
    """Take a call through steps one to four; nothing is written and nothing runs."""
    catalog = configuration.catalog
    if request.inline is None:
        entry = catalog.find(request.tool, inside=request.caller.run_id is not None)
    else:
        entry = catalog.inline(request.inline)
    if entry is None:
        return Stopped("resolve", _unknown(request.tool, configuration.catalog))
    if entry.tool.spec.hidden_parameters and request.caller.variables:
        entry = entry.hiding(filled_by(entry.tool.spec.hidden_parameters, request.caller.variables))
    if not request.caller.secrets and names_secrets(request.arguments):
        return Stopped("admit", _SECRETS, entry)
    given = request.given
    content = given.content if given is not None and given.version == entry.tool.version else None
    admitted = admit(entry, request.arguments, configuration, request.caller, content)
    if isinstance(admitted, Refusal):
        return Stopped("admit", admitted, entry)
    arguments, text = admitted

    def stopped(step: str, refusal: Refusal) -> Stopped:
        return Stopped(step, refusal, entry, _display(entry, arguments, text, configuration.redact))

    layers = entry.layers + request.caller.narrowing if request.caller.narrowing else entry.layers
    files = FileBroker(root_descriptor, layers)
    covered = cover(entry, request.caller, arguments, files, configuration.root_path)
    if isinstance(covered, Refusal):
        return stopped("cover", covered)
    facts = _facts(entry, request.caller, covered)
    decision = decide(facts, configuration.policies, level)
    if request.ask and decision.verdict == "allow":
        decision = replace(
            decision,
            verdict="ask",
            reasons=(Reason("default", request.ask), *decision.reasons),
            consent=request.consent and request.top_level and request.caller.end_user,
        )
    if decision.verdict == "deny":
        return stopped("decide", denied(entry, decision))
    weak = enforceable(entry, configuration.require)
    if weak is not None:
        return stopped("enforce", weak)
    asks = entry.form is not None and content is None
    made = (request.reason, request.tool_use_id, request.turn)
    return Evaluation(
        entry, arguments, text, layers, files, facts, decision, configuration.redact, asks, *made
    )


def admit(
    entry: Entry,
    given: Mapping[str, Any],
    configuration: Configuration,
    caller: Caller,
    content: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str] | Refusal:
    """Fill hidden parameters, check the whole schema, cap the size; the arguments and their JSON.

    Where a person gives some, `content` is what they gave; without it the others are checked by themselves.
    """
    arguments, limit = {**given, **(content or {})}, configuration.limits.max_argument_bytes
    if entry.hidden:
        known, who = configuration.variables, caller.principal
        unset = fill(entry.hidden, arguments, known, who, caller.variables, caller.tenant)
        if unset is not None:
            return unset
    try:
        text = as_text(arguments)
        whole = whole_characters(arguments, text)
    except (ValueError, TypeError, RecursionError):
        return Refusal(
            "INVALID_INPUT", "the arguments are not plain JSON", "leave out NaN, infinities and cycles"
        )
    if not whole:
        return Refusal(
            "INVALID_INPUT", "the arguments hold half a character, a lone surrogate", "send whole characters"
        )
    if len(text) > limit or len(text.encode()) > limit:
        return Refusal(
            "INVALID_INPUT",
            f"the arguments are larger than {limit} bytes",
            "send less at once, or raise `limits.max_argument_bytes`",
        )
    validator = entry.input_validator
    if entry.model_validator is not None and content is None:
        validator = entry.model_validator
    if not validator.is_valid(arguments):
        called = entry.tool.wire if caller.run_id is None else entry.tool.id.wire
        return _invalid(called, validator, arguments, configuration.redact)
    return arguments, text


def _invalid(
    called: str, validator: Any, arguments: Mapping[str, Any], redact: Callable[[str], str]
) -> Refusal:
    errors = list(validator.iter_errors(arguments))
    faults = [
        {"path": "/" + "/".join(map(str, error.instance_path)), "message": brief(error.message, redact)}
        for error in errors[:_FAULTS]
    ]
    said = "; ".join(f"{fault['message']} at `{fault['path']}`" for fault in faults)
    more = f" (and {len(errors) - _FAULTS} more)" if len(errors) > _FAULTS else ""
    return Refusal(
        "INVALID_INPUT",
        f"{said}{more}",
        f"see the input schema of `{called}`",
        data={"path": faults[0]["path"], **({"faults": faults} if len(faults) > 1 else {})},
    )


def cover(
    entry: Entry, caller: Caller, arguments: dict[str, Any], files: FileBroker, root_path: str
) -> dict[str, Any] | Refusal:
    """Hold the tool and each `x-path` argument to every layer.

    Gives the arguments with each path as it resolves, which is what the policy's rules look at.
    """
    missing = entry.uncovered or (coverage(entry.tool.scopes, caller.narrowing) if caller.narrowing else None)
    if missing is not None:
        return Refusal(
            "SCOPE_DENIED",
            f"the {missing.layer} does not cover `{missing.needed}`, which `{entry.tool.id}` needs",
            "`packhost tools list --all` shows what is withheld and why",
            rule=missing.place,
            layer=missing.layer,
            patterns=missing.patterns,
        )
    for path, access in entry.tool.path_arguments:
        for place, value in values_at(arguments, path):
            try:
                resolved = files.resolve(value, access)
            except ScopeDenied as denied_use:
                return _outside(denied_use, value, place, access, entry.layers, files, root_path)
            except PackhostError as error:
                return Refusal(error.code, error.message, error.hint, data={"path": _pointer(place)})
            if resolved != value:
                arguments = _replaced(arguments, place, resolved)
    return arguments


def _replaced(arguments: Any, place: Sequence[str | int], value: str) -> Any:
    """A copy of the arguments along one place, with another value there."""
    if not place:
        return value
    head, rest = place[0], place[1:]
    changed: Any = list(arguments) if isinstance(arguments, list) else dict(arguments)
    changed[head] = _replaced(arguments[head], rest, value)
    return changed


def _outside(
    error: ScopeDenied,
    value: str,
    place: tuple[str | int, ...],
    access: Access,
    layers: Sequence[Layer],
    files: FileBroker,
    root_path: str,
) -> Refusal:
    near = nearest_path(value, access, layers, files, root_path)
    return Refusal(
        "SCOPE_DENIED",
        error.message,
        f"the nearest path that is allowed is `{near}`"
        if near
        else error.hint or "choose a path inside the scopes",
        rule=error.place,
        layer=error.data.get("layer"),
        patterns=tuple(error.data.get("patterns", ())),
        nearest={"at": _pointer(place), "value": near} if near else None,
        data={"path": _pointer(place)},
    )


def _pointer(place: Sequence[str | int]) -> str:
    return "/" + "/".join(str(part) for part in place)


def values_at(
    arguments: Any, path: Sequence[str], before: tuple[str | int, ...] = ()
) -> list[tuple[tuple[str | int, ...], str]]:
    """The strings at an `x-path` place; `*` stands for every item of an array."""
    if not path:
        return [(before, arguments)] if isinstance(arguments, str) else []
    head, rest = path[0], path[1:]
    if head == "*" and isinstance(arguments, list):
        return [found for i, item in enumerate(arguments) for found in values_at(item, rest, (*before, i))]
    if isinstance(arguments, Mapping) and head in arguments:
        return values_at(arguments[head], rest, (*before, head))
    return []


def _facts(entry: Entry, caller: Caller, arguments: Mapping[str, Any]) -> Facts:
    spec = entry.tool.spec
    return Facts(
        tool=entry.tool.id,
        kind=spec.kind,
        permission=spec.permission,
        principal=caller.principal,
        client=caller.client,
        arguments=arguments,
        required=entry.required,
        control=spec.control,
    )


def decide(facts: Facts, policies: Sequence[Policy], level: Level) -> Decision:
    """Every configuration decides; the strictest counts."""
    decision = policies[0].decide(facts, level)
    for policy in policies[1:]:
        decision = strictest(decision, policy.decide(facts, level))
    return decision


def denied(entry: Entry, decision: Decision) -> Refusal:
    """A denial, with the reason that decided and where its rule stands."""
    reason = decision.reasons[0]
    code = decision.code or "POLICY_DENIED"
    if code == "AUTONOMY_DENIED":
        hint = "a person can raise this session's level: `packhost sessions raise SESSION LEVEL`"
    else:
        hint = "do it another way, or ask whoever keeps `packhost.yaml`"
    return Refusal(code, f"`{entry.tool.id}` is denied: {reason.text}", hint, rule=reason.place)


def enforceable(entry: Entry, require: Requirement) -> Refusal | None:
    """Hold a pack from elsewhere to the enforcement level that the workspace requires."""
    level = entry.kind.enforcement(entry.tool)
    if satisfies(level, require):
        return None
    return Refusal(
        "ENFORCEMENT_UNAVAILABLE",
        f"`{entry.tool.id}` would run at level `{level}`, and the workspace requires `{require}`",
        "a person may set `enforcement.require: advisory` in packhost.yaml: its scopes are then not enforced",
        enforcement=level,
    )


def _unknown(name: str, catalog: Catalog) -> Refusal:
    like = catalog.like(name)
    return Refusal(
        "TOOL_NOT_FOUND",
        f"there is no tool `{name[:200]}`",
        f"did you mean {' or '.join(f'`{word}`' for word in like)}?"
        if like
        else "list the tools to see what there is",
        data={"near": like},
    )
