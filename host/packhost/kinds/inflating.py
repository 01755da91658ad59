"""Unpacking a body as it comes, never past a limit: a small stream may unpack to any size."""

from __future__ import annotations

import zlib
from typing import Final

_AUTO: Final = 32 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class UnknownEncoding(ValueError):
    """A body that is packed in a way that is not read here, or damaged; the message follows `a body`."""


class Inflater:
    """Unpacks what it is fed: `gzip`, `deflate`, or nothing to unpack."""

    def __init__(self, encoding: str, largest: int) -> None:
        """`largest` is how many bytes may come out. Raises `UnknownEncoding`."""
        self._largest = largest
        self._out = bytearray()
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnknownEncoding("in an encoding that was not asked for")
        self._deflate = name == "deflate"
        self._begun = False
        self._packed = None if name in ("", "identity") else zlib.decompressobj(_AUTO)

    def feed(self, data: bytes) -> bool:
        """Take the next piece; whether all so far fits. Raises `UnknownEncoding` for damaged data."""
        if self._packed is None:
            self._out += data
            return len(self._out) <= self._largest
        if not data:
            return True
        try:
            return self._inflate(self._packed, data)
        except zlib.error:
            raise UnknownEncoding("that cannot be unpacked") from None

    def _inflate(self, packed: zlib._Decompress, data: bytes) -> bool:
        if self._deflate and not self._begun and data[0] & 0x0F != 8:
            # Half of the world sends `deflate` without the header that the standard asks for.
            packed = self._packed = zlib.decompressobj(_RAW)
        self._begun = True
        while data:
            if packed.eof:
                if self._deflate:
                    raise UnknownEncoding("that goes on after its end")
                packed = self._packed = zlib.decompressobj(_AUTO)
            room = self._largest + 1 - len(self._out)
            self._out += packed.decompress(data, room)
            if len(self._out) > self._largest:
                return False
            data = packed.unconsumed_tail or packed.unused_data
        return True

    def finish(self) -> bytes:
        """Everything that came out. Raises `UnknownEncoding` when the data broke off."""
        if self._packed is not None and self._begun and not self._packed.eof:
            raise UnknownEncoding("that breaks off")
        return bytes(self._out)
