"""What goes wrong in systems of this kind, each tried: scopes, paths and policy."""

from __future__ import annotations

import random

import pytest

from packhost.gate.types import Completed, Refusal
from packhost.names import ToolId
from packhost.rules.arguments import parse_argument_match
from packhost.rules.autonomy import LEVELS
from packhost.rules.globs import matches
from packhost.rules.policy import Facts, Policy, Rule
from packhost.rules.scopes import Layer, parse_scope, path_use

pytestmark = pytest.mark.anyio

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string", "x-path": "write"}, "scopes": {"type": "array"}},
}


@pytest.mark.parametrize(
    "extra",
    [
        {"scopes": ["path write **"]},
        {"required_scopes": ["path write **"]},
        {"_meta": {"packhost/scopes": ["path write **"]}},
        {"approved": True, "approval_id": "ap_1", "level": "autonomous", "principal": "root"},
    ],
)
async def test_scopes_and_authority_that_a_caller_supplies_count_for_nothing(bench, extra):
    bench.tool("write", permission="write", required_scopes=["path write **"], input_schema=PATH)
    bench.rules = [
        Rule("deny", "not on mondays", tool="t:write", arguments=(parse_argument_match("path", "src/x"),))
    ]
    bench.reload()
    outside = await bench.call("write", {"path": "docs/a", **extra})
    denied = await bench.call("write", {"path": "src/x", **extra})
    assert (outside.code, denied.code) == ("SCOPE_DENIED", "POLICY_DENIED")
    assert bench.ran == []


@pytest.mark.parametrize(
    "path",
    [
        "packhost.yaml",
        "././packhost.yaml",
        ".//packhost.yaml",
        "packhost.yaml/",
        "src/../packhost.yaml",
        "PACKHOST.YAML",
        "packhost.yaml.",
        "packhost.yaml ",
        "pack\u200bhost.yaml",
        "\uff50ackhost.yaml",
        "sub/packhost.yaml",
        "packhost.lock",
        "any/pack.yaml",
        ".mcp.json",
        ".claude/settings.json",
        "sub/.claude/x",
        ".cursor",
        ".vscode/tasks.json",
        ".git/hooks/pre-commit",
        ".git/config",
        ".git",
        "sub/.git/config",
        "{root}/packhost.yaml",
        "/etc/passwd",
        "~/x",
        "..",
        "a\0b",
        "",
    ],
)
async def test_no_spelling_of_a_reserved_path_is_written(bench, path):
    bench.bound = ["path read **", "path write **"]
    bench.tool("write", permission="write", required_scopes=["path write **"], input_schema=PATH)
    outcome = await bench.call("write", {"path": path.replace("{root}", str(bench.root))})
    if path == "~/x":  # a name like any other: nothing here knows of homes
        assert isinstance(outcome, Completed | Refusal)
        assert isinstance(outcome, Completed) or outcome.code in ("SCOPE_DENIED", "NOT_FOUND")
        return
    assert isinstance(outcome, Refusal)
    assert outcome.code in ("SCOPE_DENIED", "INVALID_INPUT", "NOT_FOUND")
    assert bench.ran == []


@pytest.mark.parametrize(
    "path", ["*", "**", "src/*", "{src,docs}/a", "[p]ackhost.yaml", "src/?", "packhost.{yaml,lock}"]
)
async def test_wildcards_and_braces_in_an_argument_are_letters(bench, path):
    bench.bound = ["path read src/**", "path write src/**"]
    bench.tool("write", permission="write", required_scopes=["path write **"], input_schema=PATH)
    outcome = await bench.call("write", {"path": path})
    # What lies below `src` by its letters may run; nothing else does, whatever a shell would make of it.
    assert isinstance(outcome, Completed) is path.startswith("src/")


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("src/**", "src/a", "src2/a"),
        ("src/**", "src", "src2"),
        ("src/*", "src/a", "src/a/b"),
        ("a/b", "a/b", "a/bc"),
        ("*.py", "x.py", "d/x.py"),
        ("src/**", "src/.env", "SRC/a"),
    ],
)
def test_a_prefix_is_one_of_whole_names(scope, inside, outside):
    layer = [Layer("l", (parse_scope(f"path read {scope}"),))]
    assert path_use("read", inside, layer) is None
    assert path_use("read", outside, layer) is not None


def test_layers_are_never_intersected_into_something_wider():
    chance = random.Random(11)
    names = ("a", "ab", ".a", "b", ".env", "a.b")
    parts = ("a", "ab", ".a", "*", "a*", "*b", ".*", "**", "*.b")

    def glob():
        return "/".join(chance.choice(parts) for _ in range(chance.randint(1, 3)))

    passed = 0
    for _ in range(60_000):
        first, second = glob(), glob()
        layers = [
            Layer("1", (parse_scope(f"path write {first}"),)),
            Layer("2", (parse_scope(f"path write {second}"),)),
        ]
        path = "/".join(chance.choice(names) for _ in range(chance.randint(1, 3)))
        allowed = path_use("write", path, layers) is None
        assert allowed is (matches(first, path) and matches(second, path)), (first, second, path)
        passed += allowed
    assert passed > 1_000


@pytest.mark.parametrize(
    "rule",
    [
        Rule("deny", tool="files:*"),
        Rule("deny", pack="files"),
        Rule("deny", tool="files:read"),
        Rule("deny", tool="files:r*"),
    ],
)
@pytest.mark.parametrize("other", ["files2:read", "file:read", "my-files:read", "filesx:r"])
def test_a_rule_about_one_pack_reaches_no_other(rule, other):
    pack, tool = other.split(":")
    for level in LEVELS:
        met = Policy([rule]).decide(Facts(ToolId(pack, tool), "python", "read", "p", "c", {}), level)
        assert met == Policy([]).decide(Facts(ToolId(pack, tool), "python", "read", "p", "c", {}), level)
    denied = Policy([rule]).decide(
        Facts(ToolId("files", "read"), "python", "read", "p", "c", {}), "autonomous"
    )
    assert denied.verdict == "deny"


@pytest.mark.parametrize(
    ("condition", "argument"),
    [
        ({"min": 1, "max": 9}, "5"),
        ({"min": 1}, True),
        ({"max": 9}, float("nan")),
        ({"glob": "src/**"}, 5),
        ({"glob": "src/**"}, "/src/a"),
        ({"glob": "src/**"}, "src/../x"),
    ],
)
@pytest.mark.parametrize("decide", ["allow", "ask", "deny"])
def test_an_error_in_a_rule_denies_whatever_the_rule_says(condition, argument, decide):
    rules = [
        Rule("allow", tool="t:x"),
        Rule(decide, relaxable=True, arguments=(parse_argument_match("n", condition),)),
    ]
    facts = Facts(ToolId("t", "x"), "python", "read", "p", "c", {"n": argument})
    decision = Policy(rules).decide(facts, "autonomous")
    assert (decision.verdict, decision.code, decision.reasons[0].source) == ("deny", "POLICY_DENIED", "error")


async def test_what_a_policy_says_of_a_path_it_says_of_every_spelling(bench):
    (bench.root / "src" / "keep").mkdir()
    bench.rules = [
        Rule("deny", "keep out", tool="t:write", arguments=(parse_argument_match("path", "src/keep/**"),))
    ]
    bench.tool("write", permission="write", required_scopes=["path write **"], input_schema=PATH)
    for path in ("src/keep/a", "./src/keep/a", "src//keep/a", "src/keep/./a"):
        outcome = await bench.call("write", {"path": path})
        assert outcome.code in ("POLICY_DENIED", "INVALID_INPUT"), path
    bench.tool("plain", permission="write")
    bench.rules = [
        Rule("deny", "keep out", tool="t:plain", arguments=(parse_argument_match("path", "src/keep/**"),))
    ]
    bench.reload()
    for path in (
        "src/keep/a",
        "./src/keep/a",
        "src//keep/a",
        "src/keep/./a",
        "/src/keep/a",
        "src/../src/keep",
    ):
        assert (await bench.call("plain", {"path": path})).code == "POLICY_DENIED", path
    assert bench.ran == []
