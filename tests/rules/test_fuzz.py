"""Anything at all as a scope, a path, a file or a policy: an error of ours, or a sound answer."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhost.errors import PackhostError
from packhost.manifest.load import parse_manifest
from packhost.manifest.yaml import read_yaml
from packhost.names import ToolId
from packhost.rules.arguments import parse_argument_match
from packhost.rules.autonomy import LEVELS
from packhost.rules.globs import canonical, compile_glob, matches, overlaps
from packhost.rules.policy import Facts, Policy, Rule, strictest
from packhost.rules.protection import protected
from packhost.rules.scopes import Layer, PathScope, coverage, format_scope, parse_scope, path_use
from packhost.workspace.config import load_config

quick = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])

slower = settings(quick, max_examples=100)

ODD = st.text(st.sampled_from("ab./*\\{}[]?~:\0 \u200b\u202eé\u0301ÅK-_0\n"), max_size=14)
LINES = st.one_of(
    st.text(max_size=20),
    st.builds(
        "{} {}".format,
        st.sampled_from(["path read", "path write", "path", "network", "env", "secret", "exec", "tool"]),
        ODD,
    ),
)
PATHS = st.one_of(
    ODD,
    st.lists(st.sampled_from(["a", "..", ".", "", ".git", "packhost.yaml", "src"]), max_size=5).map("/".join),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@quick
@given(LINES)
def test_a_line_is_a_scope_that_is_written_as_it_was_read_or_an_error_of_ours(line: str) -> None:
    with contextlib.suppress(PackhostError):
        scope = parse_scope(line)
        again = parse_scope(format_scope(scope))
        assert again == scope
        assert coverage([scope], [Layer("same", (scope,))]) is None


@quick
@given(ODD, ODD, PATHS)
def test_a_path_that_is_used_matches_every_layer_and_stays_below_the_root(a: str, b: str, path: str) -> None:
    layers = []
    for text in (a, b):
        with contextlib.suppress(PackhostError):
            layers.append(Layer("l", (PathScope("write", compile_glob(text).text),)))
    if layers and path_use("write", path, layers) is None:
        clean = canonical(path)
        assert clean is not None
        assert not protected(path)
        assert ".." not in clean.split("/")
        assert not clean.startswith("/")
        assert all(layer.globs("write")[0].matches(clean) for layer in layers)


@quick
@given(ODD, ODD, PATHS)
def test_globs_that_match_one_path_overlap(a: str, b: str, path: str) -> None:
    with contextlib.suppress(PackhostError):
        if matches(a, path) and matches(b, path):
            assert overlaps(a, b)
            assert overlaps(b, a)


@quick
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_yaml_or_an_error_of_ours(source: bytes) -> None:
    with contextlib.suppress(PackhostError):
        json.dumps(read_yaml(source, "f").data, allow_nan=False)


KEYS = st.sampled_from(
    [
        "packhost",
        "packs",
        "bound",
        "policy",
        "match",
        "tool",
        "decide",
        "arguments",
        "path",
        "id",
        "limits",
        "secrets",
        "autonomy",
        "store",
    ]
)
FILES = st.recursive(
    st.sampled_from(
        ["allow", "deny", "workspace", "workspace:*", "path read **", "kernel", 1, True, None, -1, 1.5, "x"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=15,
)


@slower
@given(st.dictionaries(KEYS, FILES, max_size=6), st.booleans())
def test_any_file_is_a_configuration_or_an_error_of_ours(data: dict[str, Any], versioned: bool) -> None:
    source = json.dumps({"packhost": 1, **data} if versioned else data).encode()
    with contextlib.suppress(PackhostError):
        load_config(source, "packhost.yaml")
    with contextlib.suppress(PackhostError):
        parse_manifest(source, "pack.yaml")


RULES = st.builds(
    dict,
    decide=st.sampled_from(["allow", "ask", "deny"]),
    relaxable=st.booleans(),
    tool=st.sampled_from([None, "t:x", "t:*", "*", "u:*"]),
    permission=st.sampled_from([None, "read", "write", "admin"]),
    arguments=st.dictionaries(st.sampled_from(["a", "a.b", "c"]), JSON, max_size=2),
)


def policy_of(rules: list[dict[str, Any]]) -> Policy:
    """The policy of those rules whose conditions can be read."""
    made = []
    for rule in rules:
        with contextlib.suppress(PackhostError):
            conditions = tuple(parse_argument_match(path, value) for path, value in rule["arguments"].items())
            made.append(Rule(**{**rule, "arguments": conditions}))
    return Policy(made)


@slower
@given(
    st.lists(RULES, max_size=5),
    st.lists(RULES, max_size=3),
    st.dictionaries(st.sampled_from("abc"), JSON, max_size=3),
    st.sampled_from(LEVELS),
    st.sampled_from(["read", "write", "admin"]),
)
def test_a_decision_is_total_and_a_further_rule_that_denies_or_asks_only_tightens(
    rules: list[dict[str, Any]],
    more: list[dict[str, Any]],
    arguments: dict[str, Any],
    level: Any,
    permission: Any,
) -> None:
    strict = [
        {**rule, "decide": "deny" if rule["decide"] == "deny" else "ask", "relaxable": False} for rule in more
    ]
    facts = Facts(ToolId("t", "x"), "python", permission, "p", "c", arguments)
    order = ("allow", "ask", "deny")
    few, many = policy_of(rules).decide(facts, level), policy_of([*rules, *strict]).decide(facts, level)
    if permission != "admin":  # an admin call asks by default alone, and any rule lifts that
        assert order.index(many.verdict) >= order.index(few.verdict)
    both = strictest(few, many)
    assert order.index(both.verdict) == max(order.index(few.verdict), order.index(many.verdict))
    assert (few.code is None) is (few.verdict != "deny")
