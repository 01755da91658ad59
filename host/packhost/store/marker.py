"""A restoration that was decided, and how it is carried to its end by whoever opens the workspace next."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Final

from packhost.errors import StoreUnavailable
from packhost.workspace.files import sync_folder

MARKER: Final = "restore.json"
FOLDER: Final = ".restore-"


def finish(state: Path) -> bool:
    """Carry a restoration that was decided to its end; whether there was one. The caller holds the lock.

    Raises `StoreUnavailable` when a file cannot be moved.
    """
    marker = state / MARKER
    try:
        said = json.loads(marker.read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"`{marker}` cannot be read: {error}", hint="look at it by hand") from None
    folder, aside = state / said["from"], state / said["aside"]
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in said["old"]:
            if not (aside / name).exists() and (state / name).exists():
                os.rename(state / name, aside / name)
        sync_folder(aside)
        for name in said["new"]:
            if (folder / "new" / name).exists():
                os.rename(folder / "new" / name, state / name)
        sync_folder(state)
        marker.unlink()
        sync_folder(state)
    except OSError as error:
        raise StoreUnavailable(
            f"a restoration could not be ended: {error}",
            hint="make the state folder writable, then try again",
        ) from error
    shutil.rmtree(folder, ignore_errors=True)
    return True


def sweep(state: Path) -> None:
    """Remove what restorations left that were broken off before they were decided; under the lock."""
    if not (state / MARKER).exists():
        for left in state.glob(f"{FOLDER}*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(left)
