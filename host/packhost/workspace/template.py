"""The commented `packhost.yaml` that `packhost init` writes."""

from __future__ import annotations

import json

from packhost.errors import ConfigInvalid
from packhost.rules.scopes import parse_scope

_HEAD = """\
# What agents may do in this folder, through packhost.
# A narrowing edit holds at once; a widening one waits until a person accepts it (`packhost accept`).
packhost: 1

packs:
  - agent-runtime            # agent turns, and the controls over them
  - workspace                # read, search, write and move files in this folder

# Nothing goes beyond these scopes, whatever a pack declares.
bound:
  - path read **
  - path write .agent-runtime/**
"""
_WRITES = """\

# Rules about calls: allow, ask or deny. Deny beats ask beats allow.
policy:
  - match: {tool: "workspace:*", permission: write}
    decide: ask
    reason: writes are looked at first
    relaxable: true          # the level `autonomous` no longer asks
"""
_NO_WRITES = """\

# Rules about calls: allow, ask or deny. Deny beats ask beats allow.
policy: []
# To let agents write below a folder, add `path write src/**` to the bound, and a rule that asks first:
#  - match: {tool: "workspace:*", permission: write}
#    decide: ask
#    reason: writes are looked at first
#    relaxable: true
"""
_TAIL = """\

# observe < supervised < guarded < autonomous
autonomy: {default: guarded, maximum: autonomous}

approvals: {timeout: 10m, hold: 50s}

# Secrets are references, never values: env:NAME, file:PATH or cmd:PROGRAM.
# secrets: {PROVIDER_KEY: env:PROVIDER_KEY}

# A model for `execute-turn`:
# agent_runtime:
#   default_model: main
#   models:
#     main:
#       provider: messages_compatible
#       model: NAME
#       base_url: https://api.example.com
#       api_key: PROVIDER_KEY
#       max_tokens: 4096
"""


def init_settings_text(writes_under: str | None) -> str:
    """A commented file; with `writes_under`, agents may write below that folder and a person is asked first.

    Raises `ConfigInvalid` when that is not a folder below the root.
    """
    if writes_under is None:
        return _HEAD + _NO_WRITES + _TAIL
    folder = writes_under.strip().removeprefix("./").rstrip("/")
    if any(character in folder for character in "*\n\r"):
        raise ConfigInvalid(f"`{folder}` is not a folder", hint="name a folder such as `src`")
    line = f"path write {folder}/**" if folder not in ("", ".") else "path write **"
    parse_scope(line)
    return (
        _HEAD + f"  - {json.dumps(line, ensure_ascii=False) if _quoted(line) else line}\n" + _WRITES + _TAIL
    )


def _quoted(line: str) -> bool:
    return any(character in line for character in "#:\"'\\") or not line.isascii()
