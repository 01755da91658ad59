"""From a manifest's file to its model, and what each mistake is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from packhost.errors import ManifestInvalid
from packhost.manifest.load import load_manifest, parse_manifest
from packhost.shipped import SHIPPED_PACKS, shipped_manifest

Bend = Callable[..., bytes]


def test_a_sound_manifest_is_read_with_its_defaults(manifest: Bend) -> None:
    tool = parse_manifest(manifest(), "pack.yaml").manifest.tools[0]
    assert (tool.idempotent, tool.timeout, tool.control, tool.required_scopes) == (
        True,
        600.0,
        False,
        ("path read **",),
    )


@pytest.mark.parametrize(("permission", "idempotent"), [("read", True), ("write", False), ("admin", False)])
def test_only_reading_is_idempotent_by_default(manifest: Bend, permission: str, idempotent: bool) -> None:
    loaded = parse_manifest(manifest(("permission: read", f"permission: {permission}")), "pack.yaml")
    assert loaded.manifest.tools[0].idempotent is idempotent


@pytest.mark.parametrize(
    ("old", "new", "place", "path", "said", "hint"),
    [
        (
            "permission: read",
            "permission: reed",
            "12:17",
            "tools.0.permission",
            "`reed`",
            "did you mean `read`?",
        ),
        (
            "    timeout",
            "    timeuot",
            "15:5",
            "tools.0.timeuot",
            "not a known key",
            "did you mean `timeout`?",
        ),
        ("title: Demo", "titel: Demo", "4:1", "titel", "not a known key", "did you mean `title`?"),
        (
            "kind: python",
            "kind: pyton",
            "10:11",
            "tools.0.kind",
            "`pyton` is not a known kind",
            "did you mean `python`?",
        ),
        (
            "[path read **]",
            "[pth read **]",
            "14:23",
            "tools.0.required_scopes.0",
            "`pth`",
            "did you mean `path`?",
        ),
        (
            "[path read **]",
            "[path red **]",
            "14:23",
            "tools.0.required_scopes.0",
            "`red`",
            "did you mean `read`?",
        ),
        ("[path read **]", "[path read ../x]", "14:23", "tools.0.required_scopes.0", "`../x`", ""),
        (
            "demo:go]",
            "demo:goo]",
            "13:26",
            "tools.0.required_approvals.0",
            "is not declared",
            "did you mean `demo:go`?",
        ),
        (
            "demo:go]",
            "go]",
            "13:26",
            "tools.0.required_approvals.0",
            "cannot be `go`",
            "write `<pack>:<name>`",
        ),
        ("version: 1.0.0", "version: 1.0", "3:10", "version", "must be text", "put it in quotes"),
        ("timeout: 10m", "timeout: 10min", "15:14", "tools.0.timeout", "`min` is not a unit", "write `60s`"),
        ("timeout: 10m", "timeout: 0", "15:14", "tools.0.timeout", "out of range", "more than 0"),
        ("timeout: 10m", "idempotent: 1", "15:17", "tools.0.idempotent", "must be `true` or `false`", ""),
        ("id: demo", "id: packhost", "2:5", "id", "`packhost` is reserved", "another id"),
        ("id: demo", "id: my_pack", "2:5", "id", "cannot be `my_pack`", "lower-case"),
        (
            "demo.reading:read_it",
            "demo.reading",
            "11:13",
            "tools.0.target",
            "cannot be",
            "write `module:function`",
        ),
        (
            "title: Demo",
            "title: Demo\nconfig_key: policy",
            "5:13",
            "config_key",
            "a key of packhost's own",
            "",
        ),
        (
            "title: Demo",
            "title: Demo\nconfig_schema: {type: object}",
            "5:16",
            "config_schema",
            "no `config_key`",
            "",
        ),
        ("timeout: 10m", "control: true", "15:14", "tools.0.control", "for shipped packs", "leave it out"),
        (
            "timeout: 10m",
            "hidden_parameters: [pth]",
            "15:25",
            "tools.0.hidden_parameters.0",
            "`pth`",
            "did you mean `path`?",
        ),
        (
            "timeout: 10m",
            "hidden_parameters: [_internal_id]",
            "15:25",
            "tools.0.hidden_parameters.0",
            "`_internal_id` is never filled",
            "take it out",
        ),
        (
            "path: {type: string, x-path: read}",
            "_tenant: {type: object}",
            "19:18",
            "tools.0.input_schema.properties._tenant",
            "`_tenant` is the host's to fill",
            "name it in `hidden_parameters`",
        ),
        (
            "timeout: 10m",
            "config: {nested: [{a: 'Bearer {{secret:KEY}}'}]}",
            "15:27",
            "tools.0.config.nested.0.a",
            "cannot reference {{secret:NAME}}",
            "take it out",
        ),
        (
            "{type: string, x",
            "{type: strin, x",
            "19:22",
            "tools.0.input_schema.properties.path.type",
            "sound JSON Schema",
            "",
        ),
        (
            "type: object",
            "type: array",
            "17:13",
            "tools.0.input_schema.type",
            "must be of `type: object`",
            "",
        ),
        (
            "{type: string, x",
            "{type: integer, x",
            "19:39",
            "tools.0.input_schema.properties.path.x-path",
            "`type: string`",
            "",
        ),
        (
            "x-path: read",
            "x-path: both",
            "19:38",
            "tools.0.input_schema.properties.path.x-path",
            "cannot be `both`",
            "`read` or",
        ),
        (
            "type: object",
            "anyOf: [{x-path: read}]\n      type: object",
            "17:24",
            "tools.0.input_schema.anyOf.0.x-path",
            "would not be checked",
            "",
        ),
        (
            "type: object",
            "$ref: 'https://example.org/x'\n      type: object",
            "17:7",
            "tools.0.input_schema",
            "sound JSON Schema",
            "",
        ),
        (
            "type: object",
            "$schema: 'http://json-schema.org/draft-07/schema#'\n      type: object",
            "17:16",
            "tools.0.input_schema.$schema",
            "another dialect",
            "",
        ),
        (
            "read_it\n    desc",
            "a" * 60 + "\n    desc",
            "8:11",
            "tools.0.name",
            "has 65 characters",
            "shorten",
        ),
        ("    permission: read\n", "", "8:5", "tools.0.permission", "is missing", "add it to `tools.0`"),
        (
            "    target: demo.reading:read_it\n",
            "",
            "8:5",
            "tools.0",
            "`target` is missing",
            "module:function",
        ),
    ],
)
def test_a_mistake_is_told_with_place_path_and_nearest_word(
    manifest: Bend, old: str, new: str, place: str, path: str, said: str, hint: str
) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(manifest((old, new)), "pack.yaml")
    problem = next(p for p in caught.value.data["problems"] if said in p.message)
    assert (str(problem.place), problem.path) == (f"pack.yaml:{place}", path)
    assert hint in problem.hint


def test_every_mistake_in_a_file_is_told_in_the_file_s_order(manifest: Bend) -> None:
    source = manifest(
        ("title: Demo", "titel: Demo"), ("permission: read", "permission: reed"), ("10m", "10x")
    )
    with pytest.raises(ManifestInvalid) as caught:
        parse_manifest(source, "pack.yaml")
    assert [p.path for p in caught.value.data["problems"]] == [
        "title",
        "titel",
        "tools.0.permission",
        "tools.0.timeout",
    ]


def test_a_tool_that_stands_twice_is_an_error(manifest: Bend) -> None:
    source = (
        manifest(("\n    description", "\n    description"))
        + b"  - {name: read_it, description: d, kind: code, permission: read}\n"
    )
    with pytest.raises(ManifestInvalid, match="the tool `read_it` stands twice"):
        parse_manifest(source, "pack.yaml")


def test_an_approval_of_another_pack_may_be_asked_for(manifest: Bend) -> None:
    loaded = parse_manifest(manifest(("demo:go]", "other:go]")), "pack.yaml")
    assert loaded.manifest.tools[0].required_approvals == ("other:go",)


def test_a_kind_that_is_at_hand_is_known(manifest: Bend) -> None:
    source = manifest(("kind: python", "kind: special"))
    assert parse_manifest(source, "pack.yaml", kinds=["special"]).manifest.tools[0].kind == "special"


def test_a_shipped_pack_may_have_control_tools(manifest: Bend) -> None:
    source = manifest(("timeout: 10m", "control: true"))
    assert parse_manifest(source, "pack.yaml", shipped=True).manifest.tools[0].control


@pytest.mark.parametrize("source", [b"", b"[]", b"just text"])
def test_what_is_no_mapping_is_no_manifest(source: bytes) -> None:
    with pytest.raises(ManifestInvalid, match="a manifest is a mapping of keys"):
        parse_manifest(source, "pack.yaml")


def test_a_manifest_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match="cannot be read: no such file"):
        load_manifest(tmp_path / "pack.yaml")


@pytest.mark.parametrize("pack", SHIPPED_PACKS)
def test_a_shipped_manifest_is_sound(pack: str) -> None:
    assert load_manifest(shipped_manifest(pack), shipped=True).id == pack
