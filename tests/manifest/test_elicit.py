"""What a tool may ask a person for: which forms a manifest can declare, and what it is told of others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from packhost.manifest.elicit import elicit_faults, form_of, without
from packhost.manifest.load import parse_manifest
from packhost.manifest.model import ToolSpec

SEAT = {"type": "string", "enum": ["aisle", "window"]}
FORM = {
    "message": "Which seat, and how many bags?",
    "requested_schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["seat"],
        "properties": {
            "seat": {**SEAT, "title": "Seat"},
            "bags": {"type": "integer", "minimum": 0, "maximum": 3},
        },
    },
    "merge": "parameters",
}
INPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["flight", "seat"],
    "properties": {
        "flight": {"type": "string"},
        "seat": {**SEAT, "description": "Where to sit."},
        "bags": {"type": "integer", "minimum": 0, "maximum": 3},
    },
}


def tool(form: Any = FORM, schema: Any = INPUT, kind: str = "code", **more: Any) -> ToolSpec:
    return ToolSpec(
        name="book",
        description="Book.",
        kind=kind,
        permission="write",
        input_schema=schema,
        config={"elicit": form},
        **more,
    )


def bent(value: Any, path: str, new: Any) -> Any:
    """A copy with one member changed, or taken out where `new` is `...`."""
    made = copy.deepcopy(value)
    *steps, last = path.split("/")
    inner = made
    for step in steps:
        inner = inner[step]
    if new is ...:
        del inner[last]
    else:
        inner[last] = new
    return made


@pytest.mark.parametrize("kind", ["http", "code"])
def test_a_form_whose_fields_are_the_tools_own_is_sound(kind: str) -> None:
    spec = tool(kind=kind)
    assert list(elicit_faults(spec)) == []
    form = form_of(spec)
    assert form is not None
    assert form.names == {"seat", "bags"}
    assert form.wire == {
        "type": "object",
        "properties": FORM["requested_schema"]["properties"],
        "required": ["seat"],
    }


def test_an_agent_sees_what_is_left() -> None:
    shown = without(INPUT, frozenset({"seat", "bags"}))
    assert (list(shown["properties"]), shown["required"]) == (["flight"], ["flight"])
    assert shown["additionalProperties"] is False


@pytest.mark.parametrize(
    ("path", "new", "where", "said"),
    [
        ("message", ..., "message", "no text"),
        ("message", " ", "message", "no text"),
        ("message", "a\x1bb", "message", "no text"),
        ("message", "x" * 2001, "message", "no text"),
        ("merge", "result", "merge", "`parameters`"),
        ("merge", ..., "merge", "`parameters`"),
        ("then", 1, "then", "no `then`"),
        ("requested_schema", [], "requested_schema", "not a schema"),
        ("requested_schema/type", "array", "requested_schema/type", "type: object"),
        ("requested_schema/additionalProperties", ..., "requested_schema", "not closed"),
        ("requested_schema/additionalProperties", True, "requested_schema", "not closed"),
        ("requested_schema/properties", {}, "requested_schema/properties", "1 to 20"),
        ("requested_schema/required", ["seat", "no"], "requested_schema/required", "`no`"),
        ("requested_schema/allOf", [], "requested_schema/allOf", "`allOf`"),
        ("requested_schema/$defs", {}, "requested_schema/$defs", "`$defs`"),
        ("requested_schema/dependentRequired", {}, "requested_schema/dependentRequired", "cannot have"),
        ("requested_schema/properties/seat", {"$ref": "#"}, "requested_schema/properties/seat/$ref", "$ref"),
        ("requested_schema/properties/seat", True, "requested_schema/properties/seat", "no schema"),
        (
            "requested_schema/properties/seat/type",
            "object",
            "requested_schema/properties/seat/type",
            "simple",
        ),
        (
            "requested_schema/properties/seat/pattern",
            "a",
            "requested_schema/properties/seat/pattern",
            "cannot have",
        ),
        (
            "requested_schema/properties/seat/default",
            "aisle",
            "requested_schema/properties/seat/default",
            "cannot have",
        ),
        ("requested_schema/properties/seat/enum", ["aisle"], "requested_schema/properties/seat", "differs"),
        ("requested_schema/properties/seat/enum", [1], "requested_schema/properties/seat/enum", "texts"),
        ("requested_schema/properties/seat/minLength", 1, "requested_schema/properties/seat", "differs"),
        ("requested_schema/properties/bags/maximum", 3.0, "requested_schema/properties/bags", "differs"),
        ("requested_schema/properties/bags/type", "number", "requested_schema/properties/bags", "`type`"),
        (
            "requested_schema/properties/bags/minLength",
            1,
            "requested_schema/properties/bags/minLength",
            "cannot have",
        ),
        (
            "requested_schema/properties/more",
            {"type": "string"},
            "requested_schema/properties/more",
            "no param",
        ),
        ("requested_schema/properties/_x", {"type": "string"}, "requested_schema/properties/_x", "reserved"),
        (
            "requested_schema/properties/constructor",
            {"type": "string"},
            "requested_schema/properties/constructor",
            "reserved",
        ),
        ("requested_schema/required", ["seat", "bags"], "requested_schema/properties/bags", "one of the two"),
        ("requested_schema/required", [], "requested_schema/properties/seat", "one of the two"),
    ],
)
def test_what_is_wrong_with_a_form_is_told_with_its_place(path: str, new: Any, where: str, said: str) -> None:
    faults = list(elicit_faults(tool(bent(FORM, path, new))))
    assert any(
        "/".join(map(str, at)) == f"config/elicit/{where}" and said in text for at, text, _ in faults
    ), faults


@pytest.mark.parametrize(
    ("path", "new", "where"),
    [
        ("additionalProperties", ..., "input_schema"),
        ("anyOf", [{}], "input_schema/anyOf"),
        ("$defs", {"a": {}}, "input_schema/$defs"),
        ("minProperties", 1, "input_schema/minProperties"),
        ("properties/flight", {"$ref": "#/properties/seat"}, "input_schema/properties/flight/$ref"),
    ],
)
def test_the_tools_own_schema_is_held_to_the_same(path: str, new: Any, where: str) -> None:
    faults = list(elicit_faults(tool(schema=bent(INPUT, path, new))))
    assert where in ["/".join(map(str, at)) for at, _, _ in faults]


def test_a_hidden_parameter_is_not_the_persons_to_give() -> None:
    (fault,) = elicit_faults(tool(hidden_parameters=("seat",)))
    assert fault[0] == ("config", "elicit", "requested_schema", "properties", "seat")
    assert "hidden" in fault[1]


def test_a_parameter_named_like_a_keyword_is_no_reference() -> None:
    schema = bent(INPUT, "properties/$ref", {"type": "string"})
    assert list(elicit_faults(tool(schema=schema))) == []


def test_only_kinds_that_the_host_sends_itself_ask() -> None:
    (fault,) = elicit_faults(tool(kind="flow"))
    assert "only `http` and `code`" in fault[2]


def test_the_example_of_the_page_is_sound() -> None:
    text = (Path(__file__).parents[2] / "docs/kinds/elicit.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n", 1)[1].split("```", 1)[0]
    (tool,) = parse_manifest(example.encode(), "pack.yaml").manifest.tools
    form = form_of(tool)
    assert form is not None
    assert (form.message, form.names) == ("Which seat would you like?", {"seat", "bags"})
