"""What is known of clients by the name that they give: limits that a workspace's tools may run into.

A client's name is a label: a profile changes what is said, never what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mcp import types


@dataclass(frozen=True, slots=True)
class Profile:
    """One client's limits; `None` where none is known."""

    title: str
    called: tuple[str, ...]
    """How the name begins that it gives itself, in lower case."""
    prefix: str
    """What it puts before a tool's name, where the server is called `packhost`."""
    longest_name: int | None
    """Characters of a tool's name with that prefix; a longer one is not offered to its model."""
    most_tools: int | None
    """Tools of all servers together that it offers to its model."""
    longest_text: int | None
    """Characters of a description or of the instructions that it keeps."""
    most_output: int | None
    """Tokens of a result that it shows; the rest goes to a file of its own."""
    source: str


PROFILES: Final = (
    Profile(
        "Claude Code",
        called=("claude-code",),
        prefix="mcp__packhost__",
        longest_name=128,
        most_tools=None,
        longest_text=2048,
        most_output=25_000,
        source="measured with 2.1.332, and read in its program",
    ),
    Profile(
        "Cursor",
        called=("cursor",),
        prefix="packhost",
        longest_name=60,
        most_tools=80,
        longest_text=None,
        most_output=None,
        source="its warnings, as issues quote them: ComposioHQ/composio#2788, Snowflake-Labs/mcp#77",
    ),
    Profile(
        "Visual Studio Code",
        called=("visual studio code", "vscode"),
        prefix="mcp_packhost_",
        longest_name=64,
        most_tools=128,
        longest_text=None,
        most_output=None,
        source="microsoft/vscode#243602, microsoft/vscode#254933",
    ),
    Profile(
        "Codex",
        called=("codex",),
        prefix="mcp__packhost__",
        longest_name=64,
        most_tools=None,
        longest_text=None,
        most_output=None,
        source="the provider's pattern of names, ^[a-zA-Z0-9_-]{1,64}$",
    ),
)


def profile_of(client: str) -> Profile | None:
    """The profile of a client by the name that it gives itself."""
    name = client.casefold()
    return next((one for one in PROFILES if name.startswith(one.called)), None)


def trouble(profile: Profile, tools: Sequence[types.Tool], instructions: str) -> Iterator[str]:
    """What of the list does not reach the client's model, a sentence each."""
    longest, text = profile.longest_name, profile.longest_text
    if longest is not None:
        for tool in tools:
            if len(profile.prefix) + len(tool.name) > longest:
                yield (
                    f"{profile.title} offers no tool of over {longest} characters: `{tool.name}`, to which "
                    "`names` in packhost.yaml can give a shorter name"
                )
    if profile.most_tools is not None and len(tools) > profile.most_tools:
        yield (
            f"{profile.title} offers {profile.most_tools} tools of all servers together, and here are "
            f"{len(tools)}: enable fewer packs, or narrow the bound"
        )
    if text is not None:
        for tool in tools:
            if len(tool.description or "") > text:
                yield f"{profile.title} cuts the description of `{tool.name}` after {text} characters"
        if len(instructions) > text:
            yield f"{profile.title} cuts the instructions after {text} characters"
