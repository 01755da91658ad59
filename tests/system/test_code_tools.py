"""Code tools in the real command: its process ends as it should, whatever the interpreter's threads do."""

from __future__ import annotations

from typing import Any

import pytest

MANIFEST = """\
packhost: 1
id: prices
version: "1.0"
title: Prices
tools:
  - name: double
    description: Double a number.
    kind: code
    permission: read
    input_schema: {type: object, properties: {n: {type: number}}, additionalProperties: false}
    config: {code: "n * 2"}
"""


@pytest.mark.slow
def test_the_command_ends_well_each_time(world: Any) -> None:
    world.write("packs/prices/pack.yaml", MANIFEST)
    world.write("packhost.yaml", "packhost: 1\npacks: [{path: packs/prices}]\nbound: [path read **]\n")
    world.accept()
    for number in range(10):
        assert world.run("call", "prices:double", f'{{"n": {number}}}').stdout.strip() == str(number * 2)
