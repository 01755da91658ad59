"""What packhost.yaml says, and what each mistake in it is told."""

from __future__ import annotations

import pytest

from packhost.errors import ConfigInvalid, Place
from packhost.manifest.load import parse_manifest
from packhost.manifest.model import PackManifest
from packhost.rules.arguments import ArgumentMatch
from packhost.workspace.config import load_config, load_settings
from packhost.workspace.settings import PackSettings, default_settings
from packhost.workspace.template import init_settings_text

SOUND = b"""\
packhost: 1
packs:
  - agent-runtime
  - {id: workspace, scopes: [path read **]}
  - {path: ./mine, trust: true}
policy:
  - match: {tool: "workspace:*", permission: write, arguments: {path: "src/*", size: {max: 3}, mode: fast}}
    decide: ask
    reason: writes are looked at first
    relaxable: true
    approvers: 2
approvals: {timeout: 10m, hold: 50s, named: {"agent-runtime:remote_control": {assurance: operator}}}
limits: {max_argument_bytes: 64KiB}
secrets: {KEY: env:KEY}
mine: {size: 3}
"""
MINE = b"""\
packhost: 1
id: mine
version: "1"
title: Mine
config_key: mine
config_schema:
  type: object
  additionalProperties: false
  properties:
    size: {type: integer}
    inner: {type: object, additionalProperties: false, properties: {colour: {type: string}}}
tools: []
"""


def find(pack: PackSettings) -> PackManifest | None:
    """The manifest of the pack `./mine` alone."""
    return parse_manifest(MINE, "pack.yaml").manifest if pack.path else None


def test_with_nothing_said_the_defaults_hold() -> None:
    assert load_settings(b"packhost: 1\n") == load_settings(b"") == default_settings()


def test_the_defaults_are_those_of_the_design() -> None:
    settings = default_settings()
    assert [pack.id for pack in settings.packs] == ["agent-runtime", "workspace"]
    assert settings.bound == ("path read **", "path write .agent-runtime/**")
    assert (settings.autonomy.default, settings.autonomy.maximum) == ("guarded", "autonomous")
    assert (settings.approvals.timeout, settings.approvals.hold) == (600.0, 50.0)
    assert (settings.limits.max_argument_bytes, settings.limits.max_result_bytes) == (1024**2, 4 * 1024**2)
    assert settings.enforcement.require == "partial"


def test_a_sound_file_is_read_whole() -> None:
    settings = load_settings(SOUND, find=find)
    assert [pack.name for pack in settings.packs] == ["agent-runtime", "workspace", "./mine"]
    assert settings.sections == {"mine": {"size": 3}}
    assert settings.approvals.named["agent-runtime:remote_control"].assurance == "operator"


def test_a_rule_keeps_its_place_and_its_conditions() -> None:
    (rule,) = load_config(SOUND, find=find).rules
    assert rule.place == Place("packhost.yaml", 7, 5)
    assert (rule.tool, rule.permission, rule.approvers, rule.relaxable) == ("workspace:*", "write", 2, True)
    assert rule.arguments == (
        ArgumentMatch("path", "glob", glob="src/*"),
        ArgumentMatch("size", "range", maximum=3),
        ArgumentMatch("mode", "exact", exact="fast"),
    )


@pytest.mark.parametrize(
    ("body", "place", "said", "hint"),
    [
        ("bond: []", "2:1", "`bond`", "did you mean `bound`?"),
        ("bound: path read **", "2:8", "`bound` must be a list", "after `- `"),
        ("bound: [path rea **]", "2:9", "`rea`", "did you mean `read`?"),
        ("bound: [path write ../x/**]", "2:9", "bound.0", ""),
        ("packs: [3]", "2:9", "`packs.0` must be a mapping", ""),
        ("variables: {_endUser: {id: x}}", "2:12", "`_endUser` is the host's own", "take it out"),
        ("variables: {_internal_x: 1}", "2:12", "`_internal_x` is the host's own", ""),
        ("variables: {_tenant: acme}", "2:12", "`_tenant` has no `id`", "`_tenant: {id: NAME}`"),
        ("names: {read: look}", "2:8", "`read` is no tool's name", "write it as `<pack>:<tool>`"),
        ("names: {'a:b': 'a:b'}", "2:8", "do not take the name `a:b` as it is", "64 at most"),
        ("names: {'a:b': " + "x" * 65 + "}", "2:8", "do not take the name", "64 at most"),
        ("names: {'a:b': packhost_status}", "2:8", "kept for the host's own tools", "begin it otherwise"),
        ("names: {'a:b': Packhost-status}", "2:8", "kept for the host's own tools", ""),
        ("names: {'a:b': inline_look}", "2:8", "kept for the host's own tools", ""),
        ("names: {'a:b': look-at, 'a:c': Look_at}", "2:8", "`a:c` and `a:b` would have one name", "another"),
        ("packs: [{scopes: []}]", "2:9", "named by `id` or by `path`", "one of the two"),
        ("packs: [{id: a, path: b}]", "2:9", "named by `id` or by `path`", ""),
        ("packs: [{id: a, trsut: true}]", "2:17", "`packs.0.trsut`", "did you mean `trust`?"),
        ("packs: [a, a]", "2:12", "the pack `a` stands twice", "keep one"),
        ("policy: [{decide: aks}]", "2:19", "`aks`", "did you mean `ask`?"),
        ("policy: [{match: {tol: x}, decide: ask}]", "2:19", "`policy.0.match.tol`", "did you mean `tool`?"),
        ("policy: [{match: {tool: x}, decide: ask}]", "2:25", "policy.0.match.tool", ""),
        ("policy: [{match: {permission: wirte}, decide: ask}]", "2:31", "`wirte`", "did you mean `write`?"),
        ("policy: [{match: {arguments: {a: {mx: 1}}}, decide: ask}]", "2:31", "`mx`", "did you mean `max`?"),
        ("policy: [{match: {arguments: {a: [1]}}, decide: ask}]", "2:31", "is a list", ""),
        ("policy: [{decide: ask, approvers: 3}]", "2:35", "policy.0.approvers", ""),
        ("policy: [{match: {}}]", "2:10", "`policy.0.decide` is missing", "add it to `policy.0`"),
        ("approvals: {timeout: 10mn}", "2:22", "`mn` is not a unit", ""),
        ("approvals: {always_allow: 1}", "2:27", "must be `true` or `false`", ""),
        ("approvals: {named: {remote: {}}}", "2:21", "cannot be `remote`", "write `<pack>:<name>`"),
        ("autonomy: {maximum: autonmous}", "2:21", "`autonmous`", "did you mean `autonomous`?"),
        ("enforcement: {require: kernal}", "2:24", "`kernal`", "did you mean `kernel`?"),
        ("limits: {max_result_bytes: 4mb}", "2:28", "`mb` is not a unit", ""),
        ("store: mysql", "2:8", "`mysql` is not a store", "postgresql://"),
        ("secrets: {A: sk-1234}", "2:14", "not a reference to a secret", "never the secret itself"),
        ("secrets: {A: 'evn:A'}", "2:14", "`evn` is not a source", "did you mean `env:`?"),
        ("secrets: {A: 'env:'}", "2:14", "names nothing", ""),
    ],
)
def test_a_mistake_is_told_with_place_and_nearest_word(body: str, place: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(f"packhost: 1\n{body}\n".encode())
    problem = caught.value.data["problems"][0]
    assert str(problem.place) == f"packhost.yaml:{place}"
    assert said in problem.message
    assert hint in problem.hint


def test_a_secret_put_in_place_of_its_reference_is_not_repeated() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(b"packhost: 1\nsecrets: {A: sk-very-secret-1234}\n")
    assert "very-secret" not in str(caught.value) + caught.value.hint + repr(caught.value.data)


@pytest.mark.parametrize(
    ("section", "place", "said", "hint"),
    [
        ("mine: 3", "3:7", "`mine` must be a mapping", ""),
        ("mine: {sise: 3}", "3:8", "`mine.sise` is not a known key", "did you mean `size`?"),
        ("mine: {inner: {color: red}}", "3:16", "`mine.inner.color`", "did you mean `colour`?"),
        ("mine: {size: big}", "3:14", '"big" is not of type "integer"', ""),
        ("mien: {}", "3:1", "`mien` is neither a known key", "did you mean `mine`?"),
    ],
)
def test_a_pack_s_section_is_held_to_the_pack_s_schema(
    section: str, place: str, said: str, hint: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(f"packhost: 1\npacks: [{{path: ./mine}}]\n{section}\n".encode(), find=find)
    problem = caught.value.data["problems"][0]
    assert str(problem.place) == f"packhost.yaml:{place}"
    assert said in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize("source", [b"[]", b"text", b"packs: []\n", b"packhost: 2\n", b"packhost: yes\n"])
def test_a_file_of_another_form_is_an_error(source: bytes) -> None:
    with pytest.raises(ConfigInvalid):
        load_settings(source)


@pytest.mark.parametrize("folder", [None, "src", "./src/", "my docs", "it's #1", "."])
def test_the_file_that_init_writes_is_sound(folder: str | None) -> None:
    settings = load_settings(init_settings_text(folder).encode())
    expected = {None: [], ".": ["path write **"]}.get(folder, [f"path write {(folder or '').strip('./')}/**"])
    assert [line for line in settings.bound if line not in default_settings().bound] == expected
    assert len(settings.policy) == (folder is not None)


@pytest.mark.parametrize("folder", ["../x", "/etc", "a*b", "a\nb"])
def test_init_refuses_a_folder_that_is_none(folder: str) -> None:
    with pytest.raises(ConfigInvalid):
        init_settings_text(folder)
