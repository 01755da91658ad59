"""From a manifest's file to its model; every problem in the file is found at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from packhost.errors import ManifestInvalid, Place
from packhost.manifest.checks import manifest_faults
from packhost.manifest.model import PackManifest
from packhost.manifest.problems import Problem, error_of
from packhost.manifest.validation import dotted, explain_errors
from packhost.manifest.yaml import MAX_BYTES, Document, read_yaml


@dataclass(frozen=True, slots=True)
class LoadedManifest:
    """A sound manifest, the bytes it was read from, and the places in its file."""

    manifest: PackManifest
    source: bytes
    document: Document

    def tool_place(self, index: int) -> Place:
        """Where the tool at `index` stands in the file."""
        return self.document.place(("tools", index))

    def place_in_tool(self, index: int, path: tuple[str | int, ...], line: int = 0, column: int = 1) -> Place:
        """Where `path` within that tool stands; with `line`, that line of the block text (`|`) there."""
        place = self.document.place(("tools", index, *path))
        lines = self.source.decode("utf-8-sig", "replace").split("\n")
        if not line or not lines[place.line - 1][place.column - 1 :].startswith("|"):
            return place
        first = next((one for one in lines[place.line :] if one.strip()), "")
        return Place(place.file, place.line + line, len(first) - len(first.lstrip(" ")) + column)


def load_manifest(
    path: Path, *, shipped: bool = False, kinds: Collection[str] | None = None, name: str | None = None
) -> PackManifest:
    """The manifest in the file at `path`.

    `shipped` allows control tools; `kinds` are the kinds at hand (else those of the design);
    `name` is the file as errors call it, else the path as given.

    Raises `ManifestInvalid` with a place, and every problem in `data["problems"]`.
    """
    return read_manifest(path, shipped=shipped, kinds=kinds, name=name).manifest


def read_manifest(
    path: Path, *, shipped: bool = False, kinds: Collection[str] | None = None, name: str | None = None
) -> LoadedManifest:
    """As `load_manifest`, with the source and the places kept."""
    called = name or str(path)
    try:
        with path.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    except OSError as error:
        said = (error.strerror or "it cannot be read").lower()
        raise ManifestInvalid(f"the manifest cannot be read: {said}", place=Place(called)) from None
    return parse_manifest(source, called, shipped=shipped, kinds=kinds)


def parse_manifest(
    source: bytes, name: str, *, shipped: bool = False, kinds: Collection[str] | None = None
) -> LoadedManifest:
    """The manifest in `source`; `name` is the file as errors call it.

    Raises `ManifestInvalid` with a place, and every problem in `data["problems"]`.
    """
    return _sound(source, name, shipped, None if kinds is None else frozenset(kinds))


# A start asks for the same few manifests again and again: for a section's schema, in the accepted copy and in
# the file, and for the registry. What comes of it is frozen, so that one serves all.
@lru_cache(maxsize=64)
def _sound(source: bytes, name: str, shipped: bool, kinds: frozenset[str] | None) -> LoadedManifest:
    document, manifest = _parsed(source, name)
    problems = [
        Problem("MANIFEST_INVALID", message, hint, document.place(path), manifest.id, dotted(path))
        for path, message, hint in manifest_faults(manifest, shipped=shipped, kinds=kinds)
    ]
    if problems:
        raise error_of(ManifestInvalid, problems)
    return LoadedManifest(manifest, source, document)


@lru_cache(maxsize=32)
def _parsed(source: bytes, name: str) -> tuple[Document, PackManifest]:
    document = read_yaml(source, name, error=ManifestInvalid)
    if not isinstance(document.data, dict):
        raise ManifestInvalid(
            "a manifest is a mapping of keys", place=document.place(), hint="start it with `packhost: 1`"
        )
    claimed = document.data.get("id")
    pack = claimed if isinstance(claimed, str) else ""
    try:
        manifest = PackManifest.model_validate(document.data)
    except ValidationError as error:
        found = explain_errors(error, document, PackManifest, code="MANIFEST_INVALID", pack=pack)
        raise error_of(ManifestInvalid, found) from None
    return document, manifest
