"""Code of a tool: made ready so that what it returns leaves the interpreter as JSON, and checked beforehand.

Only what stands where a value is returned is changed, within its line, so that lines keep their numbers.
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from packhost.kinds.base import Located
from packhost.kinds.code_config import GIVEN, CodeConfig

if TYPE_CHECKING:
    import pydantic_monty

RETURNED: Final = "__returned__"
SENT: Final = "__fetch__"
_AT: Final = ("config", "code")
_CHECKED: Final = "__checked__"
"""A name that nothing defines: code that begins with it is read whole and never runs."""
_PATIENCE: Final = 5.0
_MEMORY: Final = 256 * 1024 * 1024
_RENEWED: Final = 1000
"""Looks after which a fresh interpreter is taken."""
_UNCOUNTED: Final = 1_000_000_000
_KEPT: Final = 4096

BYTES: Final = "packhost-bytes"
"""The one member of an object that stands for bytes in a result."""
_PRELUDE: Final = f"""\
from json import dumps as __dumps__, loads as __loads__
from base64 import b64encode as __b64encode__
def __spelled__(value):
    if isinstance(value, bytes):
        return {{{BYTES!r}: __b64encode__(value).decode()}}
    if isinstance(value, dict):
        return {{key: __spelled__(one) for key, one in value.items()}}
    if isinstance(value, (list, tuple)):
        return [__spelled__(one) for one in value]
    return value
def {RETURNED}(value):
    try:
        return __dumps__(value, allow_nan=False)
    except TypeError:
        return chr(0) + __dumps__(__spelled__(value), allow_nan=False)
"""
_FETCHING: Final = f"""\
class Reply:
    def __init__(self, found):
        self.status, self.headers, self.body, self.url = found
        self.ok = 200 <= self.status < 300
    def text(self):
        return self.body.decode('utf-8', 'replace')
    def json(self):
        return __loads__(self.text())
async def fetch(url, *, method='GET', headers=None, body=None, json=None):
    if json is not None:
        body = __dumps__(json)
        headers = {{'content-type': 'application/json', **(headers or {{}})}}
    return Reply(await {SENT}(url, method, headers or {{}}, body))
"""


def prelude(placeholders: dict[str, str]) -> str:
    """What is run before a tool's code: `fetch`, and `secrets` with a placeholder for each."""
    lines = [f"    {name} = {token!r}" for name, token in placeholders.items()]
    secrets = "\n".join(["class secrets:", *lines, ""]) if lines else ""
    return _PRELUDE + _FETCHING + secrets


def ready(code: str) -> str:
    """The code with each value that it returns, and its last expression, handed out as JSON text.

    Raises `SyntaxError` and `ValueError` for what is no Python.
    """
    tree = ast.parse(code)
    data = code.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    values = [value for statement in _returning(tree.body) if (value := statement.value) is not None]
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        values.append(last.value)
    for value in sorted(values, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        begin = starts[value.lineno - 1] + value.col_offset
        end = starts[(value.end_lineno or value.lineno) - 1] + (value.end_col_offset or 0)
        data = b"%s%s((%s))%s" % (data[:begin], RETURNED.encode(), data[begin:end], data[end:])
    return data.decode()


def _returning(body: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """The `return`s of the code itself, not of functions in it."""
    for statement in body:
        if isinstance(statement, ast.Return):
            yield statement
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _returning(getattr(statement, name, ()))
            for case in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _returning(case.body)


class Checker:
    """Reads code without running it, in an interpreter of its own that is kept for the next."""

    def __init__(self, program: Callable[[], str]) -> None:
        """`program` gives the path of the interpreter to start."""
        self._program = program
        self._pool: pydantic_monty.Monty | None = None
        self._session: pydantic_monty.MontySession | None = None
        self._known: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self._looks = 0
        self._turn = threading.Lock()

    def problems(self, config: CodeConfig) -> list[str]:
        """What is wrong with a tool's code, a sentence each, with its line."""
        key = (config.code, config.parameters)
        with self._turn:
            if key not in self._known:
                while len(self._known) >= _KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = list(self._look(config.code, {*config.parameters, *GIVEN, "Reply"}))
            return self._known[key]

    def close(self) -> None:
        """Let the interpreter go."""
        session, pool, self._session, self._pool = self._session, self._pool, None, None
        if session is not None:
            session.__exit__(None, None, None)
        if pool is not None:
            pool.__exit__(None, None, None)

    def _look(self, code: str, given: Collection[str]) -> Iterator[str]:
        import pydantic_monty  # 30 ms, and only code tools need it

        try:
            ready(code)
        except SyntaxError as error:
            yield _at(error.lineno or 1, error.offset or 1, error.msg)
            return
        except (ValueError, RecursionError, MemoryError) as error:
            yield _at(1, 1, f"it cannot be read: {' '.join(str(error).split())[:200]}")
            return
        try:
            yield from self._read(code, given)
        except OSError as error:
            self.close()
            yield _at(1, 1, f"the interpreter cannot be started: {(error.strerror or str(error)).lower()}")
        except pydantic_monty.MontyCrashedError:
            self.close()
            yield _at(1, 1, "the interpreter gave up on it")

    def _read(self, code: str, given: Collection[str]) -> Iterator[str]:
        import pydantic_monty  # as above

        self._looks += 1
        if self._looks % _RENEWED == 0:
            self.close()
        session = self._open()
        try:
            session.feed_run(f"{_CHECKED}\n{code}", skip_type_check=True)
        except (pydantic_monty.MontySyntaxError, pydantic_monty.MontyRuntimeError) as error:
            said = error.display("msg")
            if _CHECKED not in said:
                frame = error.traceback()[-1] if error.traceback() else None
                yield _at(frame.line - 1 if frame else 1, frame.column if frame else 1, _plain(said))
                return
        try:
            session.feed_run(f"{_CHECKED}\n{code}")
        except pydantic_monty.MontyTypingError as error:
            for finding in json.loads(error.display()):
                if (told := self._finding(finding, given)) is not None:
                    yield told

    def _finding(self, finding: dict[str, Any], given: Collection[str]) -> str | None:
        """What is told of something that the type checker found: unknown names and modules alone."""
        name = finding["message"].split("`")[1] if "`" in finding["message"] else ""
        line, column = finding["location"]["row"] - 1, finding["location"]["column"]
        if finding["code"] == "unresolved-import":
            return _at(line, column, f"there is no module `{name}` here")
        if finding["code"] == "unresolved-reference" and line > 0 and name not in given:
            return None if self._built_in(name) else _at(line, column, f"the name `{name}` is not known")
        return None

    def _built_in(self, name: str) -> bool:
        """Whether the interpreter knows a name that the type checker does not."""
        import pydantic_monty  # as above

        try:
            self._open().feed_run(f"{name}\nNone", skip_type_check=True)
        except pydantic_monty.MontyError:
            return False
        return True

    def _open(self) -> pydantic_monty.MontySession:
        import pydantic_monty  # as above

        if self._session is None:
            self._pool = pydantic_monty.Monty(
                binary_path=self._program(), max_processes=1, request_timeout=_PATIENCE
            )
            self._pool.__enter__()
            session = self._pool.checkout(
                type_check=True,
                type_check_format="json",
                limits={"max_memory": _MEMORY, "max_suspensions": _UNCOUNTED},
            )
            session.__enter__()
            self._session = session
        return self._session


def _plain(said: str) -> str:
    return said.replace("The monty syntax parser does not yet support", "this is not supported:")


def _at(line: int, column: int, message: str) -> Located:
    return Located(f"line {line} of `code`: {message}", _AT, line, column)
