"""The kind `python`: a tool that is a Python function.

A shipped pack's handler runs in the host's process: an async one is awaited, a sync one runs in a thread. A
pack from elsewhere never enters the host: its calls run in processes that the kernel confines (`forked`), or
where it cannot, in plain ones of their own (`worker`).
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.context import CallContext
from packhost.kinds.conversation import told
from packhost.kinds.forked import ForkedCalls
from packhost.kinds.forking import Zygote
from packhost.kinds.targets import form_problems, source_problems
from packhost.kinds.worker import run_in_process
from packhost.manifest.model import ToolSpec
from packhost.sandbox.level import Enforcement
from packhost.sandbox.probe import Proof

log = logging.getLogger(__name__)

PREVIEW_SECONDS = 5.0
"""How long a preview may take before a person is asked without it."""
PREVIEW_LENGTH = 24_000
"""Characters of a preview that are shown."""
MAX_PROCESSES = 64
"""Processes of packs from elsewhere that run at once, in one host."""
ROOM_WAIT = 10.0
"""Seconds that a call waits for one of them to end; they count against its deadline."""
_GRACE_STEP = 0.01

Handler = Callable[[CallContext, dict[str, Any]], Any]


class PythonKind:
    """Runs handlers; `root` is the workspace's folder, in which a process of its own starts."""

    name = "python"

    def __init__(self, root: Path, *, abi: int | None = None) -> None:
        """`abi` takes the kernel for one with no more than that Landlock ABI."""
        self._root = root
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._processes = anyio.Semaphore(MAX_PROCESSES, fast_acquire=True)
        self._zygote = Zygote(root, abi=abi) if sys.platform == "linux" else None
        self._forked = ForkedCalls(self._zygote, root, self._descriptor) if self._zygote else None

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `target` and `config`, a sentence each; nothing is imported."""
        problems = (
            source_problems(spec.target, [folder]) if folder and spec.target else form_problems(spec.target)
        )
        problems += [
            f"`config` of kind `python` has no `{key}`: only `preview`, `nested` and `task` are known"
            for key in spec.config
            if key not in ("preview", "nested", "task")
        ]
        if spec.config.get("task") not in (None, "optional", "required"):
            problems.append("`config.task` is `optional` or `required`, or left out")
        preview = spec.config.get("preview")
        if preview is not None and (not isinstance(preview, str) or form_problems(preview)):
            problems.append("`config.preview` is not a function: write `module:function`")
        return problems

    def enforcement(self, tool: Tool) -> Enforcement:
        """`host` for a shipped pack; for any other what was proved here, which at first takes a moment."""
        if tool.pack.shipped:
            return "host"
        return "advisory" if self._zygote is None else self._zygote.proof.level

    @property
    def proof(self) -> Proof | None:
        """What was proved for packs from elsewhere, with the reason; `None` where there is nothing to try."""
        return None if self._zygote is None else self._zygote.proof

    def warm(self) -> None:
        """Start proving what can be enforced, without waiting for it."""
        if self._zygote is not None:
            self._zygote.start()

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run the handler and return what it returns; see `Kind.run`."""
        if not tool.pack.shipped:
            async with self._room(tool):
                if self._forked is not None and self.enforcement(tool) != "advisory":
                    return await self._forked.run(tool, arguments, context)
                return await run_in_process(tool, arguments, context, self._root)
        try:
            handler, awaited = self._handler(tool.spec.target or "")
            if awaited:
                return await handler(context, arguments)
            return await _in_thread(tool, handler, context, arguments)
        except PackhostError:
            raise
        except Exception as error:  # whatever a handler raises is the call's failure, not the host's
            log.exception("%s raised", tool.id)
            what = f"{type(error).__name__}: {told(str(error), context)}"
            raise ToolFailed(
                f"the handler of `{tool.id}` raised {what}",
                hint="check the arguments; the host's log has more",
            ) from error

    @asynccontextmanager
    async def _room(self, tool: Tool) -> AsyncIterator[None]:
        """Room for a process, waited for a while: no caller may take all that the machine has."""
        with anyio.move_on_after(ROOM_WAIT) as waited:
            await self._processes.acquire()
        if waited.cancelled_caught:
            raise PackhostError(
                f"`{tool.id}` did not run: {MAX_PROCESSES} tools run in processes of their own already",
                code="LIMIT_EXCEEDED",
                hint="nothing happened; make the same call again in a few seconds",
                retry_after=5,
            )
        try:
            yield
        finally:
            self._processes.release()

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """What the function named by `config.preview` says of the call; empty when it fails.

        A pack from elsewhere has none: its code does not run before a person has agreed.
        """
        target = tool.spec.config.get("preview")
        if not tool.pack.shipped or not isinstance(target, str):
            return ""
        text = ""
        with anyio.move_on_after(PREVIEW_SECONDS):
            try:
                handler, _ = self._handler(target)
                text = str(
                    await anyio.to_thread.run_sync(handler, context, arguments, abandon_on_cancel=True)
                )
            except Exception:  # a missing preview must not keep a person from being asked
                log.exception("the preview of %s failed", tool.id)
        return text if len(text) <= PREVIEW_LENGTH else f"{text[:PREVIEW_LENGTH]}\n… (cut)"

    async def close(self) -> None:
        """End the processes that were kept."""
        if self._forked is not None:
            await self._forked.close()
        os.close(self._descriptor)

    def _handler(self, target: str) -> tuple[Handler, bool]:
        known = self._handlers.get(target)
        if known is None:
            module, _, function = target.partition(":")
            handler: Handler = getattr(importlib.import_module(module), function)
            known = self._handlers[target] = (handler, inspect.iscoroutinefunction(handler))
        return known


async def _in_thread(tool: Tool, handler: Handler, context: CallContext, arguments: dict[str, Any]) -> Any:
    """Run a sync handler in a thread.

    A thread cannot be stopped. When a call that changes something is cancelled, its thread is waited for
    until the tool's time is up, so that what it did is not still being done when the end is recorded.
    """
    work = _Work(handler, context, arguments)
    limit = anyio.current_time() + tool.spec.timeout
    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        if work.under_way() and not tool.spec.idempotent:
            with anyio.CancelScope(deadline=limit, shield=True):
                while not work.ended:  # noqa: ASYNC110  # an abandoned thread may outlive the loop and its events
                    await anyio.sleep(_GRACE_STEP)
        raise


class _Work:
    """A handler's run in a thread: begun at most once, and not at all once it was given up."""

    def __init__(self, handler: Handler, context: CallContext, arguments: dict[str, Any]) -> None:
        self._handler = handler
        self._context = context
        self._arguments = arguments
        self._turn = threading.Lock()
        self.ended = False

    def __call__(self) -> Any:
        if not self._turn.acquire(blocking=False):
            return None
        try:
            return self._handler(self._context, self._arguments)
        finally:
            self.ended = True

    def under_way(self) -> bool:
        """Whether the handler has begun; if not, it never will."""
        return not self._turn.acquire(blocking=False)
