"""What accepting the file as it stands would make possible, in sentences for a person.

Only widening is listed where two configurations can be compared. What cannot be compared (secrets,
variables, store, approvals, sections) is listed whenever it differs, since it is read from the accepted
copy alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packhost.rules.autonomy import rank
from packhost.rules.globs import printable
from packhost.rules.scopes import PathScope, Scope, parse_scope
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.authorization import AuthSettings
from packhost.workspace.settings import PackSettings, Requirement, RuleSettings, Settings

STRICTNESS: Mapping[Requirement, int] = {"advisory": 0, "partial": 1, "kernel": 2}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that becomes possible; `code` says that it brings code to this machine's account."""

    text: str
    """On one line: nothing in the file can pass for a line of ours."""
    code: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text, len(self.text)))


def widening(accepted: Settings, file: Settings, changed_packs: Mapping[str, bool]) -> list[Change]:
    """Everything that the file allows and the accepted copy does not.

    `changed_packs` holds the file's packs by path: whether their sources are others than the accepted ones.
    """
    return [
        *_packs(accepted, file, changed_packs),
        *_scopes(accepted.bound, file.bound, "the workspace's bound would allow"),
        *_rules(accepted.policy, file.policy),
        *_levels(accepted, file),
        *_others(accepted, file),
    ]


def _packs(accepted: Settings, file: Settings, changed: Mapping[str, bool]) -> Iterator[Change]:
    before = {pack.name: pack for pack in accepted.packs}
    for pack in file.packs:
        old = before.get(pack.name)
        if pack.path is not None and (old is None or changed.get(pack.path, True)):
            verb = "is new" if old is None else "has changed"
            yield Change(f"the pack in `{pack.path}` {verb}: its code would run", code=True)
        elif old is None:
            shipped = pack.id in SHIPPED_PACKS
            yield Change(
                f"the {'shipped' if shipped else 'installed'} pack `{pack.id}` would be enabled", not shipped
            )
        if pack.trust and not (old and old.trust):
            yield Change(
                f"the pack `{pack.name}` would be trusted: its hooks would run in the host", code=True
            )
        if old is not None:
            yield from _entry(old, pack)


def _entry(old: PackSettings, new: PackSettings) -> Iterator[Change]:
    if old.scopes is None:
        return
    if new.scopes is None:
        yield Change(f"the pack `{new.name}` would be narrowed no more")
    else:
        yield from _scopes(old.scopes, new.scopes, f"the pack `{new.name}` would be allowed")


def _scopes(before: tuple[str, ...], after: tuple[str, ...], saying: str) -> Iterator[Change]:
    known = [parse_scope(line) for line in before]
    for line in after:
        scope = parse_scope(line)
        if not any(_inside(scope, other) for other in known):
            yield Change(f"{saying} `{line}`")


def _inside(scope: Scope, other: Scope) -> bool:
    """Whether `other` surely allows all of `scope`; where that is not plain to see, no."""
    if scope == other:
        return True
    if not isinstance(scope, PathScope) or not isinstance(other, PathScope) or scope.access != other.access:
        return False
    head, tail = other.glob[:-2], other.glob[-2:]
    return tail == "**" and "*" not in head and (scope.glob.startswith(head) or scope.glob == head[:-1])


def _rules(before: tuple[RuleSettings, ...], after: tuple[RuleSettings, ...]) -> Iterator[Change]:
    for rule in before:
        if rule not in after and rule.decide != "allow":
            done = "asks first" if rule.decide == "ask" else "denies"
            yield Change(f"a rule that {done} would be gone: {_rule(rule)}")
    for rule in after:
        if rule not in before and rule.decide == "allow":
            yield Change(f"a rule would allow {_rule(rule)}")


def _rule(rule: RuleSettings) -> str:
    match = rule.match.model_dump(exclude_none=True, exclude_defaults=True)
    about = ", ".join(f"{key} `{value}`" for key, value in match.items()) or "every call"
    return f"{about} ({rule.reason})" if rule.reason else about


def _levels(accepted: Settings, file: Settings) -> Iterator[Change]:
    for key in ("default", "maximum"):
        old, new = getattr(accepted.autonomy, key), getattr(file.autonomy, key)
        if rank(new) > rank(old):
            yield Change(f"the {key} level of autonomy would rise from `{old}` to `{new}`")
    if STRICTNESS[file.enforcement.require] < STRICTNESS[accepted.enforcement.require]:
        yield Change(
            f"packs from elsewhere would need only `{file.enforcement.require}` enforcement, "
            f"not `{accepted.enforcement.require}`"
        )
    for key in type(file.limits).model_fields:
        before, after = getattr(accepted.limits, key), getattr(file.limits, key)
        if after > before:
            yield Change(f"`limits.{key}` would rise from {before} to {after} bytes")


def _others(accepted: Settings, file: Settings) -> Iterator[Change]:
    yield from _secrets(accepted.secrets, file.secrets)
    if accepted.variables != file.variables:
        yield Change("the values of hidden parameters (`variables`) would change")
    for tool in sorted({*accepted.names, *file.names}):
        before, after = accepted.names.get(tool), file.names.get(tool)
        if before != after:
            called = f"be called `{after}`" if after else f"be called `{before}` no more"
            yield Change(f"`{tool}` would {called} by clients (`names`)")
    if accepted.store != file.store:
        yield Change("records would be kept in another store (`store`)")
    if accepted.retention != file.retention:
        yield Change("how long the record is kept (`retention`) would change")
    if accepted.telemetry != file.telemetry:
        yield Change("where traces and metrics go (`telemetry`) would change")
    yield from _auth(accepted.auth, file.auth)
    for name, hook in sorted(file.webhooks.items()):
        if accepted.webhooks.get(name) != hook:
            told = ", ".join(hook.events)
            yield Change(f"`{hook.url}` would be told of {told} (`webhooks.{name}`)")
    for name in sorted(accepted.webhooks.keys() - file.webhooks):
        yield Change(f"the webhook `{name}` would be told of nothing any more")
    if accepted.approvals != file.approvals:
        yield Change("how people are asked (`approvals`) would change")
    for key in sorted({*accepted.sections, *file.sections}):
        if accepted.sections.get(key) != file.sections.get(key):
            yield Change(f"the section `{key}` would change")


def _auth(before: AuthSettings, after: AuthSettings) -> Iterator[Change]:
    """Who would be let in over HTTP; every issuer that is new or other than before is named."""
    known = {one.issuer: one for one in before.issuers}
    for one in after.issuers:
        if known.pop(one.issuer, None) != one:
            roles = dict.fromkeys([*(rule.role for rule in one.roles), one.role])
            yield Change(
                f"access tokens of `{one.issuer}` would be taken over HTTP, in the roles "
                f"{', '.join(role for role in roles if role != 'none')}"
            )
    for issuer in known:
        yield Change(f"access tokens of `{issuer}` would be taken no more")
    rest = {"issuers": ()}
    if before.model_copy(update=rest) != after.model_copy(update=rest):
        yield Change("who is let in over HTTP (`auth`) would change")


def _secrets(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name, reference in after.items():
        if before.get(name) != reference:
            source = reference.partition(":")[0]
            shown = reference if source in ("cmd", "env", "file") else f"{source}:…"
            yield Change(f"the secret `{name}` would be read from `{shown}`", code=source == "cmd")
    for name in before:
        if name not in after:
            yield Change(f"the secret `{name}` would be gone")
