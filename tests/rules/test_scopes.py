"""Scopes: how a line is read, what layers leave, and that no use passes what one layer refuses."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid, Place
from packhost.rules.globs import matches
from packhost.rules.hosts import canonical_host
from packhost.rules.scopes import (
    EnvScope,
    ExecScope,
    Layer,
    NetworkScope,
    PathScope,
    Scope,
    SecretScope,
    ToolScope,
    coverage,
    env_use,
    exec_use,
    format_scope,
    network_use,
    parse_scope,
    path_use,
    protected,
    secret_use,
    tool_use,
)


def layer(*lines: str, name: str = "bound") -> Layer:
    return Layer(name, tuple(parse_scope(line) for line in lines), Place("packhost.yaml", 3))


def outcome(line: str) -> Scope | ConfigInvalid:
    try:
        return parse_scope(line)
    except ConfigInvalid as error:
        return error


@pytest.mark.parametrize(
    ("line", "scope"),
    [
        ("path read **", PathScope("read", "**")),
        ("path write .agent-runtime/**", PathScope("write", ".agent-runtime/**")),
        ("path read My Folder/*", PathScope("read", "My Folder/*")),
        ("  path   read   a  ", PathScope("read", "a")),
        ("network Example.COM", NetworkScope("example.com")),
        ("network example.com:443", NetworkScope("example.com", 443)),
        ("network [2001:DB8:0::1]:80", NetworkScope("2001:db8::1", 80)),
        ("network [::1]", NetworkScope("::1")),
        ("network 127.0.0.1:1", NetworkScope("127.0.0.1", 1)),
        ("network b\u00fccher.example", NetworkScope("xn--bcher-kva.example")),
        ("network localhost:65535", NetworkScope("localhost", 65535)),
        ("env PATH", EnvScope("PATH")),
        ("secret PROVIDER_KEY", SecretScope("PROVIDER_KEY")),
        ("exec git", ExecScope("git")),
        ("exec /usr/bin/git", ExecScope("/usr/bin/git")),
        ("tool workspace:*", ToolScope("workspace:*")),
        ("tool *:read_*", ToolScope("*:read_*")),
    ],
)
def test_a_line_reads_as_its_scope_and_is_written_back(line: str, scope: Scope) -> None:
    assert parse_scope(line) == scope
    assert parse_scope(format_scope(scope)) == scope


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("", "a scope is one of"),
        ("pth read **", "did you mean `path`"),
        ("path", "a scope is one of"),
        ("path raed **", "did you mean `read`"),
        ("path read", "a scope is one of"),
        ("path delete **", "a scope is one of"),
        ("path read ../x", "take `..` out"),
        ("path read /etc/**", "relative"),
        ("path read {a,b}", "only `*`"),
        ("network", "a scope is one of"),
        ("network *.example.com", "in full"),
        ("network https://example.com", "write `example.com`"),
        ("network example.com/x", "in full"),
        ("network example.com.", "in full"),
        ("network exa mple.com", "in full"),
        ("network example.com:0", "1 to 65535"),
        ("network example.com:65536", "1 to 65535"),
        ("network example.com:\u0661", "write `example.com`"),
        ("network ::1", "[2001:db8::1]:443"),
        ("network [fe80::1%eth0]", "[2001:db8::1]"),
        ("network [example.com]", "only IPv6"),
        ("network 127.1", "four decimal"),
        ("network 0x7f.0.0.1", "four decimal"),
        ("network 2130706433", "four decimal"),
        ("network 127.0.0.01", "four decimal"),
        ("network fa\u00df.example", "xn--"),
        ("env A-B", "one name"),
        ("env A B", "one name"),
        ("env *", "one name"),
        ("secret a/b", "packhost.yaml"),
        ("exec git status", "without arguments"),
        ("exec ./run", "absolute path"),
        ("exec bin/run", "absolute path"),
        ("exec /usr/../run", "absolute path"),
        ("exec *", "absolute path"),
        ("tool read_file", "pack:tool"),
    ],
)
def test_what_is_no_scope_is_an_error_that_says_what_to_write(line: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_scope(line, Place("pack.yaml", 7, 9))
    assert hint in caught.value.hint
    assert caught.value.place == Place("pack.yaml", 7, 9)
    assert caught.value.code == "CONFIG_INVALID"


@pytest.mark.parametrize("name", ["a.b", "x-y", "_dmarc.example"])
def test_a_host_in_its_own_form_stays(name: str) -> None:
    assert canonical_host(name) == name


@pytest.mark.parametrize(
    ("needed", "given", "covered"),
    [
        ("path read src/**", "path read **", True),
        ("path read **", "path read src/**", True),
        ("path read src/**", "path read docs/**", False),
        ("path read src/**", "path write src/**", False),
        ("path write src/**", "path read src/**", False),
        ("path read src/*.py", "path read **/test_*", True),
        ("network a.example:443", "network a.example", True),
        ("network a.example:443", "network a.example:443", True),
        ("network a.example:443", "network a.example:80", False),
        ("network a.example", "network a.example:443", False),
        ("network a.example", "network b.example", False),
        ("env HOME", "env HOME", True),
        ("env HOME", "env Home", False),
        ("env KEY", "secret KEY", False),
        ("secret KEY", "secret KEY", True),
        ("exec git", "exec git", True),
        ("exec git", "exec /usr/bin/git", False),
        ("tool workspace:read_file", "tool workspace:*", True),
        ("tool workspace:*", "tool workspace:read_file", False),
        ("tool *", "tool *:*", True),
        ("path read **", "env HOME", False),
    ],
)
def test_a_required_scope_is_held_against_a_layer(needed: str, given: str, covered: bool) -> None:
    assert (coverage([parse_scope(needed)], [layer(given)]) is None) is covered


def test_coverage_names_the_first_layer_that_refuses_and_what_it_has_instead() -> None:
    layers = [
        layer("path write **", name="bound"),
        layer("path write docs/**", "path read **", name="manifest"),
    ]
    found = coverage([parse_scope("path write src/**")], layers)
    assert found is not None
    assert (found.layer, found.needed, found.patterns) == (
        "manifest",
        "path write src/**",
        ("path write docs/**",),
    )
    assert found.place == Place("packhost.yaml", 3)


def test_an_exact_scope_must_be_in_every_layer() -> None:
    needed = [parse_scope("env HOME")]
    assert coverage(needed, [layer("env HOME"), layer("env HOME", "env X")]) is None
    assert coverage(needed, [layer("env HOME"), layer("env X")]) is not None


@pytest.mark.parametrize(
    ("access", "path", "allowed"),
    [
        ("read", "src/a.py", True),
        ("read", "docs/a.md", False),
        ("write", "src/a.py", False),
        ("write", "out/a", True),
        ("read", "out/a", False),
        ("read", "src/../etc", False),
        ("read", "/src/a.py", False),
        ("read", "src/a\0", False),
        ("read", "src//a", False),
        ("read", "", False),
        ("read", "src", True),
    ],
)
def test_a_use_of_a_path_lies_inside_every_layer_or_is_refused(access: str, path: str, allowed: bool) -> None:
    layers = [
        layer("path read **", "path write **"),
        layer("path read src/**", "path write out/**", name="pack"),
    ]
    found = path_use("write" if access == "write" else "read", path, layers)
    assert (found is None) is allowed
    if found is not None:
        assert "\0" not in found.needed


def test_a_refused_use_names_the_layer_and_its_patterns_of_that_access() -> None:
    found = path_use("read", "x", [layer("path read **"), layer("path read a", "path write x", name="pack")])
    assert found is not None
    assert (found.layer, found.needed, found.patterns) == ("pack", "path read x", ("path read a",))


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("api.example", 443, True),
        ("API.Example", 8443, True),
        ("other.example", 443, True),
        ("other.example", 80, False),
        ("other.example", None, False),
        ("api.example", None, True),
        ("api.example.", 443, False),
        ("x.api.example", 443, False),
        ("::1", 80, True),
        ("[0:0::1]", 80, True),
        ("::ffff:127.0.0.1", 80, False),
        ("", 80, False),
        ("127.1", 80, False),
    ],
)
def test_a_host_is_reached_only_as_every_layer_names_it(host: str, port: int | None, allowed: bool) -> None:
    lines = ("network api.example", "network other.example:443", "network [::1]:80")
    assert (network_use(host, port, [layer(*lines), layer(*lines)]) is None) is allowed
    assert network_use(host, port, [layer(*lines), layer()]) is not None


def test_the_other_uses_are_exact_and_need_every_layer() -> None:
    full = layer("env HOME", "secret KEY", "exec git", "tool a:read_*")
    for use, inside, outside in (
        (env_use, "HOME", "home"),
        (secret_use, "KEY", "KEY2"),
        (exec_use, "git", "/usr/bin/git"),
        (tool_use, "a:read_x", "a:write_x"),
    ):
        assert use(inside, [full, full]) is None
        assert use(inside, [full, layer("path read **")]) is not None
        assert use(outside, [full]) is not None


PROTECTED = [
    "packhost.yaml",
    "a/b/packhost.yaml",
    "packhost.lock",
    "my-pack/pack.yaml",
    ".mcp.json",
    "x/.mcp.json",
    ".claude",
    ".claude/settings.json",
    "deep/er/.claude/commands/x.md",
    ".cursor/mcp.json",
    ".vscode/tasks.json",
    ".git",
    "sub/.git",
    ".git/config",
    ".git/hooks",
    ".git/hooks/pre-commit",
    "vendor/lib/.git/hooks/x/y",
    ".git/commondir",
    "vendor/.git/modules/lib/commondir",
    ".git/modules/lib/config",
    "PackHost.YAML",
    ".Claude/x",
    ".GIT/Hooks/pre-push",
    "pac\u212ahost.yaml",
    ".vs\u200ccode/x",
    ".vscode./x",
    "packhost.yaml ",
    "pac\uff4bhost.yaml",
    "../packhost",
    "/x",
    "a\0",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_a_protected_path_is_never_written(path: str) -> None:
    assert protected(path)
    found = path_use("write", path, [layer("path write **")])
    assert found is not None
    assert found.layer == "protected"


@pytest.mark.parametrize("path", [".claude/settings.json", "packhost.yaml", ".git/config", ".git/hooks/x"])
def test_a_protected_path_may_be_read(path: str) -> None:
    assert path_use("read", path, [layer("path read **")]) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "src/a.py",
        "packhost.yml",
        "packhost.yaml.md",
        ".git/HEAD",
        ".gitignore",
        "claude/x",
        "hooks/x",
        "config",
        "a/.github/hooks/x",
        ".gitx/config",
        "caf\u00e9/.env",
    ],
)
def test_other_paths_are_not_protected(path: str) -> None:
    assert not protected(path)


GLOBS = [
    "/".join(parts)
    for parts in (
        (a, b, c)[:size]
        for size in (1, 2, 3)
        for a in ("**", "a", "a*", "*b", ".x")
        for b in ("**", "*", "b", "*c*")
        for c in ("**", "a", "*")
    )
]


def test_no_use_of_a_path_ever_passes_what_one_layer_refuses() -> None:
    chance = random.Random(20260101)
    names = ["a", "b", "ab", "acb", ".x", "..", ".", "", "abc", "packhost.yaml", ".git", "hooks"]
    allowed = 0
    for _ in range(60_000):
        first, second = chance.choice(GLOBS), chance.choice(GLOBS)
        access = "write" if chance.random() < 0.5 else "read"
        path = "/".join(chance.choices(names, k=chance.randint(1, 4)))
        layers = [Layer("one", (PathScope(access, first),)), Layer("two", (PathScope(access, second),))]
        inside = (
            matches(first, path) and matches(second, path) and not (access == "write" and protected(path))
        )
        found = path_use(access, path, layers)
        assert (found is None) is inside
        if found is None:
            allowed += 1
            assert coverage([PathScope(access, first)], layers[1:]) is None
    assert 1000 < allowed < 59_000


scopes = st.one_of(
    st.builds(PathScope, st.sampled_from(["read", "write"]), st.sampled_from(GLOBS)),
    st.builds(NetworkScope, st.sampled_from(["a.example", "::1"]), st.sampled_from([None, 80, 443])),
    st.builds(EnvScope, st.sampled_from(["A", "B"])),
    st.builds(ToolScope, st.sampled_from(["*", "a:*", "a:b", "*:b*"])),
)
layers_of = st.builds(Layer, st.sampled_from(["x", "y"]), st.lists(scopes, max_size=4).map(tuple))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(layers_of, min_size=1, max_size=3), layers_of, st.lists(scopes, max_size=3), st.integers(0, 3)
)
def test_another_layer_never_lets_more_through(
    layers: list[Layer], another: Layer, needed: list[Scope], at: int
) -> None:
    more = [*layers[:at], another, *layers[at:]]
    if coverage(needed, layers) is not None:
        assert coverage(needed, more) is not None
    for path in ("a", "a/b", ".x/acb/a"):
        if path_use("read", path, layers) is not None:
            assert path_use("read", path, more) is not None
    if network_use("a.example", 80, layers) is not None:
        assert network_use("a.example", 80, more) is not None
    if tool_use("a:b", layers) is not None:
        assert tool_use("a:b", more) is not None


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_scope_or_a_clear_error(text: str) -> None:
    for line in (text, f"path read {text}", f"network {text}", f"exec {text}", f"tool {text}"):
        read = outcome(line)
        if isinstance(read, ConfigInvalid):
            assert read.hint
            assert read.message.isprintable()
        else:
            assert parse_scope(format_scope(read)) == read
