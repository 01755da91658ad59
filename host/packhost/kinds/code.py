"""The kind `code`: a tool that is Python source, run by an interpreter that has no system calls.

Each call gets an interpreter process of its own out of a small pool, with limits on time and memory; it
ends with its process, and neither a loop nor a crash reaches the host. The code has no files, no environment
and no packages; its one way out is `fetch`, which the host makes for it.
"""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.assets import media_type_of
from packhost.kinds.base import Tool
from packhost.kinds.code_config import CodeConfig, config_of, config_problems
from packhost.kinds.code_egress import CodeEgress
from packhost.kinds.code_launch import Launcher
from packhost.kinds.code_source import BYTES, RETURNED, SENT, Checker, prelude, ready
from packhost.kinds.context import CallContext
from packhost.manifest.model import ToolSpec
from packhost.sandbox.level import Enforcement
from packhost.workspace.redaction import brief

if TYPE_CHECKING:
    import pydantic_monty

log = logging.getLogger(__name__)

MEMORY: Final = 64 * 1024 * 1024
"""Bytes that the values of one call may take."""
PRINTED: Final = 64 * 1024
"""Bytes that one call may print; they go to the host's log."""
LARGEST: Final = 16 * 1024 * 1024
"""Characters of a result, before the workspace's own limit."""
SIDE_BY_SIDE: Final = 4
"""Calls that run at once; a further one waits for its turn."""
_GRACE: Final = 0.05
"""Seconds after which a builtin that does not look at the clock is ended with its process."""
_CALLS_A_PROCESS: Final = 500
_PARTING: Final = 0.05
_SPELLED: Final = "\0"
"""How a result begins in which bytes are spelled out."""


class CodeKind:
    """Runs code; nothing is started before a tool of this kind is checked or called."""

    name = "code"

    def __init__(self) -> None:
        self._launcher = Launcher()
        self._checker = Checker(self._launcher.path)
        self._pool: pydantic_monty.AsyncMonty | None = None
        self._opening = anyio.Lock()
        self._ready: dict[tuple[str, str], tuple[CodeConfig, str]] = {}

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `config` and its code, a sentence each; the code is not run."""
        return config_problems(spec) or self._checker.problems(config_of(spec))

    def enforcement(self, tool: Tool) -> Enforcement:
        """`host`: whatever the code reaches, the host reaches for it."""
        return "host"

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """Nothing: the arguments say it all."""
        return ""

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run the code once and return what it returns; see `Kind.run`."""
        config, source = self._made_ready(tool)
        egress = CodeEgress(config, context)
        printed = _Printed(tool, egress)
        declared = tool.spec.input_schema.get("properties", {})
        inputs = {name: arguments.get(name, _default(declared[name])) for name in config.parameters}
        pool = await self._opened()
        try:
            with anyio.fail_after(config.timeout):
                text = await _interpreted(pool, config, source, inputs, egress, printed)
        except TimeoutError:
            raise _too_long(tool, config) from None
        except PackhostError:
            raise
        except Exception as error:
            raise self._failure(tool, config, egress, error) from None
        finally:
            egress.end()
            printed.log()
        value = _value(tool, text)
        return await _kept(tool, value, context) if text is not None and text[:1] == _SPELLED else value

    def let_go(self) -> None:
        """End the interpreter that checks; the next check starts another."""
        self._checker.close()
        if self._pool is None:
            self._launcher.close()

    async def close(self) -> None:
        """End the interpreters."""
        self.let_go()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)
            # Its threads come back from waking this loop: one that does so while Python ends takes all down.
            await anyio.sleep(_PARTING)
        self._launcher.close()

    def _made_ready(self, tool: Tool) -> tuple[CodeConfig, str]:
        key = (tool.id.canonical, tool.version)
        known = self._ready.get(key)
        if known is None:
            config = config_of(tool.spec)
            known = self._ready[key] = (config, ready(config.code))
        return known

    async def _opened(self) -> pydantic_monty.AsyncMonty:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await _open(self._launcher)
        return self._pool

    def _failure(self, tool: Tool, config: CodeConfig, egress: CodeEgress, error: Exception) -> PackhostError:
        """What the code's own end means to its caller."""
        import pydantic_monty  # 30 ms, and only code tools need it

        if isinstance(error, pydantic_monty.MontyCrashedError):
            return _too_long(tool, config) if error.timed_out else _gave_up(tool)
        if not isinstance(error, pydantic_monty.MontyError):
            log.error("%s: the interpreter failed", tool.id, exc_info=error)
            return _gave_up(tool)
        said = error.exception()
        message = brief(str(said), egress.redact)
        if isinstance(said, TimeoutError) and message.startswith("feed time limit"):
            return _too_long(tool, config)
        if isinstance(said, MemoryError):
            return PackhostError(
                f"the code of `{tool.id}` took more than its memory, {MEMORY >> 20} MiB",
                code="LIMIT_EXCEEDED",
                hint="ask for less",
            )
        refused = egress.refused
        if refused is not None and isinstance(said, RuntimeError) and str(said) == refused.message:
            return refused
        number = _line(error)
        where = f" in line {number}" if number else ""
        return ToolFailed(
            f"the code of `{tool.id}` raised {type(said).__name__}{where}: {message}",
            hint="check the arguments",
        )


def _default(schema: Any) -> Any:
    return schema.get("default") if isinstance(schema, dict) else None  # `true` is a schema too


async def _open(launcher: Launcher) -> pydantic_monty.AsyncMonty:
    import pydantic_monty  # 30 ms, and only code tools need it

    try:
        pool = pydantic_monty.AsyncMonty(
            binary_path=launcher.path(),
            max_processes=SIDE_BY_SIDE,
            max_checkouts_per_worker=_CALLS_A_PROCESS,
            feed_duration_limit_grace=_GRACE,
        )
        await pool.__aenter__()
    except OSError as error:
        raise ToolFailed(
            "the interpreter for code tools cannot be started",
            hint="install `pydantic-monty` again, and let programs run in the folder for temporary files",
        ) from error
    return pool


async def _interpreted(
    pool: pydantic_monty.AsyncMonty,
    config: CodeConfig,
    source: str,
    inputs: dict[str, Any],
    egress: CodeEgress,
    printed: _Printed,
) -> Any:
    """What the code hands out: JSON text, or `None` where it returns nothing."""
    # Sleeping is not counted by the interpreter, and there is nothing to wait for.
    session = pool.checkout(
        limits={"max_feed_duration_secs": config.timeout, "max_memory": MEMORY}, os_policy={"sleep": "zero"}
    )
    async with session:
        await session.feed_run(prelude(egress.placeholders))
        return await session.feed_run(
            source, inputs=inputs, external_lookup={SENT: egress.fetch}, print_callback=printed.take
        )


class _Printed:
    """What a call prints: kept up to a limit, and told to the host's log."""

    def __init__(self, tool: Tool, egress: CodeEgress) -> None:
        self._tool = tool
        self._egress = egress
        self._parts: list[str] = []
        self._size = 0

    def take(self, stream: str, text: str) -> None:
        """The next piece; what lies beyond the limit is dropped."""
        if self._size < PRINTED:
            self._parts.append(text[: PRINTED - self._size])
        self._size += len(text)

    def log(self) -> None:
        """Tell it."""
        if self._parts:
            said = self._egress.redact("".join(self._parts)).rstrip()
            cut = " … (cut)" if self._size > PRINTED else ""
            log.info("%s printed: %s%s", self._tool.id, said, cut)


def _value(tool: Tool, text: Any) -> Any:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ToolFailed(f"the code of `{tool.id}` redefines `{RETURNED}`", hint="tell the pack's author")
    if len(text) > LARGEST:
        raise PackhostError(
            f"`{tool.id}` returned more than {LARGEST} characters",
            code="OUTPUT_TOO_LARGE",
            hint="ask for less",
        )
    try:
        return json.loads(text.removeprefix(_SPELLED))
    except (ValueError, RecursionError):
        raise PackhostError(
            f"`{tool.id}` returned something that is not JSON",
            code="OUTPUT_INVALID",
            hint="tell the pack's author; the call itself ran",
        ) from None


async def _kept(tool: Tool, value: Any, context: CallContext) -> Any:
    """A result in which each handle stands for the bytes that were there."""
    if isinstance(value, dict):
        if value.keys() == {BYTES} and isinstance(value[BYTES], str):
            return await _asset(tool, value[BYTES], context)
        return {key: await _kept(tool, one, context) for key, one in value.items()}
    if isinstance(value, list):
        return [await _kept(tool, one, context) for one in value]
    return value


async def _asset(tool: Tool, spelled: str, context: CallContext) -> str:
    host = context.host
    if host is None:
        raise ToolFailed(f"`{tool.id}` returned bytes, and nothing keeps them here", hint="return text")
    try:
        data = base64.b64decode(spelled, validate=True)
    except ValueError:
        raise ToolFailed(f"`{tool.id}` returned bytes that are none", hint="tell the pack's author") from None
    kept = await host.assets.keep(
        data, media_type_of(data), session_id=context.session_id, principal=context.principal
    )
    return kept.handle


def _line(error: Exception) -> int | None:
    frames = error.traceback() if hasattr(error, "traceback") else []
    own = [frame.line for frame in frames if frame.filename == "<python-input-1>"]
    return own[-1] if own else None


def _too_long(tool: Tool, config: CodeConfig) -> PackhostError:
    return PackhostError(
        f"the code of `{tool.id}` did not end within {config.timeout:g} s",
        code="TOOL_TIMEOUT",
        hint="ask for less, or raise its `config.timeout`",
    )


def _gave_up(tool: Tool) -> ToolFailed:
    return ToolFailed(f"the interpreter gave up on the code of `{tool.id}`", hint="check the arguments")
