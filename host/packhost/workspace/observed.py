"""What upstream servers said of themselves when that was not what was accepted: what `accept` shows.

A host that finds other definitions than the pinned ones writes them here, in the state folder, and
withholds what changed. Nothing here is in force: it is what a person is asked about.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from packhost.errors import ConfigInvalid
from packhost.names import PACK_ID
from packhost.workspace.pinned import Definition, Pins, digest, pins_text, read_pins

FOLDER: Final = "upstreams"
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of one server's definitions beyond which they are not kept, and so cannot be accepted."""


class Observed:
    """The definitions last seen of each pack's upstream, where they differ from the accepted ones."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER

    def remember(self, pack: str, live: Pins) -> bool:
        """Keep what the pack's server says of itself now; whether that is news.

        Raises `ConfigInvalid` for more than can be kept, and when it cannot be written.
        """
        before = self.recall(pack)
        if before is not None and _digests(before) == _digests(live):
            return False
        content = pins_text(live)
        if len(content) > LARGEST:
            raise ConfigInvalid(f"the server of `{pack}` says more of itself than can be kept")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=self._folder)
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, self._path(pack))
        except OSError as error:
            said = (error.strerror or "it failed").lower()
            raise ConfigInvalid(f"what the server of `{pack}` says cannot be kept: {said}") from None
        return True

    def recall(self, pack: str) -> dict[str, Definition] | None:
        """What was last seen of the pack's server; `None` when nothing else than accepted was."""
        try:
            return read_pins(self._path(pack).read_bytes())
        except (OSError, ConfigInvalid):
            return None

    def forget(self, pack: str) -> None:
        """The server says again what was accepted, or what it says has been accepted."""
        with contextlib.suppress(OSError):
            self._path(pack).unlink()

    def packs(self) -> tuple[str, ...]:
        """The packs that something was seen of, by id."""
        try:
            return tuple(sorted(path.stem for path in self._folder.glob("[a-z]*.json")))
        except OSError:
            return ()

    def _path(self, pack: str) -> Path:
        if not PACK_ID.match(pack):
            raise ConfigInvalid(f"`{pack}` is not a pack")
        return self._folder / f"{pack}.json"


def _digests(pins: Pins) -> dict[str, str]:
    return {key: digest(one) for key, one in pins.items()}
