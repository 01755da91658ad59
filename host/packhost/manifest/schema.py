"""The JSON Schema of a manifest, generated from the model: `python -m packhost.manifest.schema PATH`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from packhost.manifest.model import PackManifest
from packhost.shipped import manifests_folder

SCHEMA_FILE = "pack.schema.json"


def manifest_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a pack's manifest."""
    schema = PackManifest.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from packhost.manifest.model; do not edit.",
        **schema,
        "title": "A pack's manifest",
    }


def schema_text() -> str:
    """The schema as its file holds it."""
    return json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def write_schema(path: Path) -> None:
    """Write the schema to `path`."""
    path.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    write_schema(Path(sys.argv[1]) if len(sys.argv) > 1 else manifests_folder() / SCHEMA_FILE)
