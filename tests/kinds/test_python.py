"""Handlers of shipped packs run in the host's process."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from packhost.errors import ScopeDenied, ToolFailed
from packhost.kinds import python
from packhost.kinds.python import PythonKind
from packhost.kinds.targets import source_problems
from packhost.manifest.model import ToolSpec

SOURCE = """
import threading
from packhost.errors import ScopeDenied

begun, proceed, ended = threading.Event(), threading.Event(), threading.Event()

def plain(context, arguments):
    return {"thread": threading.get_ident(), "notes": context.files.read("notes.txt").decode()}

async def waiting(context, arguments):
    await context.report_progress(1)
    return {"thread": threading.get_ident()}

def denied(context, arguments):
    return context.files.read("src/main.py").decode()

def broken(context, arguments):
    raise ZeroDivisionError("nothing\\ngoes")

def slow(context, arguments):
    begun.set()
    proceed.wait(10)
    ended.set()

def preview(context, arguments):
    return f"would do {arguments['n']}"

def long_preview(context, arguments):
    return "x" * 100_000
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An importable module of handlers, new for each test."""
    name = f"shipped_{abs(hash(request.node.name))}"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / f"{name}.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.fixture
def make(make_tool: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Makes a shipped tool whose handler is a function of the module."""

    def tool(function: str, **more: Any) -> Any:
        return make_tool(target=f"{module}:{function}", shipped=True, **more)

    return tool


@pytest.mark.anyio
async def test_a_sync_handler_runs_in_a_thread_and_an_async_one_in_the_loop(
    kind: PythonKind, make: Callable[..., Any], context: Any
) -> None:
    plain = await kind.run(make("plain"), {}, context)
    waiting = await kind.run(make("waiting"), {}, context)
    assert plain["notes"] == "some notes"
    assert plain["thread"] != threading.get_ident()
    assert waiting["thread"] == threading.get_ident()
    assert context.progress == [(1, None, None)]
    assert kind.enforcement(make("plain")) == "host"


@pytest.mark.anyio
async def test_a_refusal_passes_and_anything_else_becomes_a_failure_in_one_line(
    kind: PythonKind, make: Callable[..., Any], context: Any
) -> None:
    with pytest.raises(ScopeDenied):
        await kind.run(make("denied"), {}, context)
    with pytest.raises(ToolFailed, match="raised ZeroDivisionError: nothing goes"):
        await kind.run(make("broken"), {}, context)
    with pytest.raises(ToolFailed, match="AttributeError"):
        await kind.run(make("absent"), {}, context)


@pytest.mark.anyio
async def test_a_cancelled_write_is_waited_for(
    kind: PythonKind, make: Callable[..., Any], context: Any, module: str
) -> None:
    handlers = __import__(module)
    async with anyio.create_task_group() as group:
        group.start_soon(kind.run, make("slow", timeout=30), {}, context)
        with anyio.fail_after(5):
            await anyio.to_thread.run_sync(handlers.begun.wait)
        group.cancel_scope.cancel()
        threading.Timer(0.05, handlers.proceed.set).start()
    assert handlers.ended.is_set()


@pytest.mark.anyio
async def test_a_cancelled_write_is_not_waited_for_beyond_its_time(
    kind: PythonKind, make: Callable[..., Any], context: Any, module: str
) -> None:
    handlers = __import__(module)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(kind.run, make("slow", timeout=0.05), {}, context)
            await anyio.to_thread.run_sync(handlers.begun.wait)
            group.cancel_scope.cancel()
    assert not handlers.ended.is_set()
    handlers.proceed.set()


@pytest.mark.anyio
async def test_a_cancelled_call_without_effects_is_given_up_at_once(
    kind: PythonKind, make: Callable[..., Any], context: Any, module: str
) -> None:
    handlers = __import__(module)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(kind.run, make("slow", timeout=60, idempotent=True), {}, context)
            await anyio.to_thread.run_sync(handlers.begun.wait)
            group.cancel_scope.cancel()
    assert not handlers.ended.is_set()
    handlers.proceed.set()


@pytest.mark.anyio
async def test_a_preview_is_shown_for_a_shipped_pack_alone(
    kind: PythonKind,
    make: Callable[..., Any],
    make_tool: Callable[..., Any],
    context: Any,
    module: str,
) -> None:
    async def preview(function: str) -> str:
        return await kind.preview(
            make("plain", config={"preview": f"{module}:{function}"}), {"n": 3}, context
        )

    assert await preview("preview") == "would do 3"
    assert await preview("broken") == ""
    assert len(await preview("long_preview")) < python.PREVIEW_LENGTH + 20
    assert await kind.preview(make("plain"), {}, context) == ""
    stranger = make_tool("def handle(context, arguments): 1", config={"preview": f"{module}:preview"})
    assert await kind.preview(stranger, {"n": 3}, context) == ""


def spec(target: str | None, **config: Any) -> ToolSpec:
    return ToolSpec.model_construct(
        name="t", description="d", kind="python", target=target, permission="read", config=config
    )


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (spec("tools:handle"), None),
        (spec("a.b.c:handle", preview="a.b:preview"), None),
        (spec(None), "needs a `target`"),
        (spec("tools"), "write `module:function`"),
        (spec("../tools:handle"), "write `module:function`"),
        (spec("json:handle"), "one of Python's own"),
        (spec("tools:handle", url="x"), "has no `url`"),
        (spec("tools:handle", preview=3), "`config.preview`"),
    ],
)
def test_a_definition_is_checked_without_importing(
    kind: PythonKind, tool: ToolSpec, words: str | None
) -> None:
    problems = kind.check(tool)
    assert problems == [] if words is None else (len(problems) == 1 and words in problems[0])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tools:handle", None),
        ("tools:later", None),
        ("tools:imported", None),
        ("tools:optional", None),
        ("package.inner:handle", None),
        ("package:handle", None),
        ("tools:hande", "did you mean `handle`"),
        ("tool:handle", "did you mean `tools`"),
        ("tools:one", "has to take `context` and `arguments`"),
        ("tools:keyword", "has to take `context` and `arguments`"),
        ("bad:handle", "cannot be read as Python"),
        ("binary:handle", "cannot be read as Python"),
    ],
)
def test_a_handler_is_found_in_the_source_without_importing(
    tmp_path: Path, target: str, words: str | None
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from .inner import handle")
    (tmp_path / "package" / "inner.py").write_text("async def handle(context, arguments, more=1): ...")
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "binary.py").write_bytes(b"\0\xff")
    (tmp_path / "tools.py").write_text(
        "raise SystemExit\n"
        "from package import handle as imported\n"
        "def handle(*everything): ...\n"
        "def one(context): ...\n"
        "def keyword(context, arguments, *, more): ...\n"
        "later = handle\n"
        "try:\n    import fast\nexcept ImportError:\n    pass\n"
        "else:\n    def optional(context, arguments): ...\n"
    )
    problems = source_problems(target, [tmp_path])
    assert problems == [] if words is None else (len(problems) == 1 and words in problems[0])
