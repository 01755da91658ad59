"""The workspace that tests of the command line and of the API work in."""

from __future__ import annotations

SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write src/**
  - path write .agent-runtime/**
policy:
  - match: {pack: workspace, permission: write}
    decide: ask
    reason: writes are looked at first
agent_runtime:
  default_model: script
  models:
    script:
      provider: scripted
      script:
        - tool_calls:
            - {id: c1, name: workspace_write_file, arguments: {path: src/turn.txt, content: "turned"}}
        - text: Done.
"""
"""Writes below src/ are asked for; the scripted model makes one, then ends."""
