"""The console's own files: one style sheet, one script, one icon."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from packhost.console.kit import BASE

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_KEPT: Final = "public, max-age=31536000, immutable"


class Assets:
    """Read once; each has an address of its own for what is in it, so that a browser asks for it once."""

    def __init__(self) -> None:
        self._files = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
        self._packed = {name: gzip.compress(data, 9) for name, data in self._files.items()}
        self._digests = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in self._files.items()}

    def address(self, name: str) -> str:
        """Where a page finds a file."""
        return f"{BASE}/static/{name}?v={self._digests[name]}"

    def answer(self, name: str, headers: Headers) -> Response | None:
        """A file, or that the browser has it; `None` when there is none of that name."""
        data = self._files.get(name)
        if data is None:
            return None
        tag = f'"{self._digests[name]}"'
        kept = {"Cache-Control": _KEPT, "ETag": tag, "Vary": "Accept-Encoding"}
        if headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=kept)
        kind = _TYPES[Path(name).suffix]
        if packs(headers):
            return Response(self._packed[name], headers={**kept, "Content-Encoding": "gzip"}, media_type=kind)
        return Response(data, headers=kept, media_type=kind)


def packs(headers: Headers) -> bool:
    """Whether a browser takes what is compressed."""
    return "gzip" in headers.get("accept-encoding", "")
