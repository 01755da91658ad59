"""From the bytes of `packhost.yaml` to what it says, with the place of everything that a refusal may name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
from pydantic import ValidationError

from packhost.errors import ConfigInvalid, PackhostError, Place
from packhost.manifest.model import PackManifest
from packhost.manifest.problems import Problem, error_of
from packhost.manifest.validation import dotted, explain_errors
from packhost.manifest.yaml import Document, Path, read_yaml
from packhost.names import nearest
from packhost.rules.arguments import parse_argument_match
from packhost.rules.policy import Policy, Rule
from packhost.rules.scopes import Layer, parse_scope
from packhost.shipped import SHIPPED_PACKS
from packhost.workspace.root import CONFIG_FILE
from packhost.workspace.settings import PackSettings, RuleSettings, Settings

ManifestFinder = Callable[[PackSettings], PackManifest | None]
"""Finds the manifest of an enabled pack without importing it; `None` when there is no sound one."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration of a workspace: its settings, parsed into what the checks use.

    `source` is `None` where there is no file and the defaults hold.
    """

    settings: Settings
    source: bytes | None
    rules: tuple[Rule, ...] = ()
    policy: Policy = field(default_factory=lambda: Policy(()))
    document: Document | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the source; empty where there is none."""
        return hashlib.sha256(self.source).hexdigest() if self.source is not None else ""

    def layer(self, name: str, path: Path, scopes: tuple[str, ...]) -> Layer:
        """The scopes at `path` in the file as a layer that knows its place."""
        place = self.document.place(path, key=True) if self.document else None
        return Layer(name, tuple(parse_scope(scope) for scope in scopes), place)


def load_settings(source: bytes, name: str = CONFIG_FILE, find: ManifestFinder | None = None) -> Settings:
    """The settings in `source`; see `load_config`."""
    return load_config(source, name, find).settings


def load_config(source: bytes, name: str = CONFIG_FILE, find: ManifestFinder | None = None) -> ConfigFile:
    """The configuration in `source`; `find` finds the manifests of enabled packs, for their sections.

    Raises `ConfigInvalid` with a place, and every problem in `data["problems"]`.
    """
    document = read_yaml(source, name, error=ConfigInvalid)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise ConfigInvalid(
            "packhost.yaml is a mapping of keys", place=document.place(), hint="start it with `packhost: 1`"
        )
    if data and "packhost" not in data:
        raise ConfigInvalid(
            "`packhost` is missing", place=document.place(), hint="start the file with `packhost: 1`"
        )
    own = {key: value for key, value in data.items() if key in Settings.model_fields}
    foreign = {key: value for key, value in data.items() if key not in own}
    try:
        settings = Settings.model_validate(own)
    except ValidationError as error:
        problems = explain_errors(error, document, Settings, code="CONFIG_INVALID")
        problems += [_unknown(key, document, ()) for key in foreign if nearest(key, Settings.model_fields, 1)]
        raise error_of(ConfigInvalid, problems) from None
    problems = [*_section_problems(foreign, settings, find, document), *_pack_problems(settings, document)]
    rules = _rules(settings, document, problems)
    if problems:
        raise error_of(ConfigInvalid, problems)
    settings.sections.update(foreign)
    return ConfigFile(settings, source, rules, Policy(rules), document)


def _section_problems(
    foreign: Mapping[str, Any], settings: Settings, find: ManifestFinder | None, document: Document
) -> list[Problem]:
    if not foreign:
        return []
    found = [find(pack) for pack in settings.packs] if find else []
    manifests = {manifest.config_key: manifest for manifest in found if manifest and manifest.config_key}
    problems = []
    for key, value in foreign.items():
        manifest = manifests.get(key)
        if manifest is None:
            problems.append(
                _owned(key, settings, find, document) or _unknown(key, document, tuple(manifests))
            )
        elif not isinstance(value, dict):
            message = f"`{key}` must be a mapping"
            problems.append(_problem(message, "write `key: value`, a line each", document, (key,)))
        elif manifest.config_schema is not None:
            problems += _schema_problems(key, value, manifest.config_schema, document)
    return problems


def _owned(key: str, settings: Settings, find: ManifestFinder | None, document: Document) -> Problem | None:
    """A section whose shipped pack is not enabled."""
    enabled = {pack.id for pack in settings.packs}
    for pack in SHIPPED_PACKS:
        manifest = find(PackSettings(id=pack)) if find and pack not in enabled else None
        if manifest is not None and manifest.config_key == key:
            message = f"`{key}` is the section of the pack `{pack}`, which is not enabled"
            return Problem(
                "CONFIG_INVALID",
                message,
                f"add `{pack}` to `packs`",
                document.place((key,), key=True),
                "",
                key,
            )
    return None


def _schema_problems(
    key: str, value: Mapping[str, Any], schema: Mapping[str, Any], document: Document
) -> list[Problem]:
    problems = []
    for error in jsonschema_rs.Draft202012Validator(dict(schema), offline=True).iter_errors(value):
        path: Path = (key, *error.instance_path)
        unexpected = getattr(error.kind, "unexpected", None)
        if not isinstance(unexpected, list):
            said = error.message.splitlines()[0].rstrip(".")
            problems.append(_problem(f"`{dotted(path)}`: {said}", "", document, path))
            continue
        known = _properties(schema, error.schema_path)
        for name in unexpected:
            problems.append(_unknown_key((*path, name), document, known))
    return problems


def _properties(schema: Mapping[str, Any], path: Sequence[Any]) -> list[str]:
    at: Any = schema
    for step in path[:-1]:
        at = at[step] if isinstance(at, list) else at.get(step, {})
    found = at.get("properties", {}) if isinstance(at, dict) else {}
    return list(found)


def _unknown(key: str, document: Document, sections: tuple[str, ...]) -> Problem:
    return _unknown_key((key,), document, [*Settings.model_fields, *sections])


def _unknown_key(path: Path, document: Document, known: list[str]) -> Problem:
    near = nearest(str(path[-1]), known, 1)
    listed = ", ".join(f"`{word}`" for word in sorted(known))
    hint = f"did you mean `{near[0]}`?" if near else f"known here: {listed}" if known else "take it out"
    message = f"`{dotted(path)}` is neither a known key nor the section of an enabled pack"
    if len(path) > 1:
        message = f"`{dotted(path)}` is not a known key"
    return Problem("CONFIG_INVALID", message, hint, document.place(path, key=True), "", dotted(path))


def _problem(message: str, hint: str, document: Document, path: Path) -> Problem:
    return Problem("CONFIG_INVALID", message, hint, document.place(path), "", dotted(path))


def _pack_problems(settings: Settings, document: Document) -> list[Problem]:
    names = [pack.name for pack in settings.packs]
    return [
        _problem(f"the pack `{name}` stands twice", "keep one of them", document, ("packs", index))
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def _rules(settings: Settings, document: Document, problems: list[Problem]) -> tuple[Rule, ...]:
    rules = []
    for index, rule in enumerate(settings.policy):
        try:
            rules.append(_rule(rule, ("policy", index), document))
        except PackhostError as error:
            where = error.place or document.place(("policy", index))
            problems.append(
                Problem("CONFIG_INVALID", error.message, error.hint, where, "", f"policy.{index}")
            )
    return tuple(rules)


def _rule(rule: RuleSettings, path: Path, document: Document) -> Rule:
    match = rule.match
    return Rule(
        decide=rule.decide,
        reason=rule.reason,
        relaxable=rule.relaxable,
        place=document.place(path),
        tool=match.tool,
        pack=match.pack,
        kind=match.kind,
        permission=match.permission,
        principal=match.principal,
        arguments=tuple(
            parse_argument_match(name, value, _argument_place(document, path, name))
            for name, value in match.arguments.items()
        ),
        approvers=rule.approvers,
        assurance=rule.assurance,
    )


def _argument_place(document: Document, path: Path, name: str) -> Place:
    return document.place((*path, "match", "arguments", name), key=True)
