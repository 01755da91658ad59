"""The paths that no write scope matches, whatever it says."""

from __future__ import annotations

import unicodedata

from packhost.rules.globs import canonical

PROTECTED_PATTERNS = (
    "packhost.yaml",
    "packhost.lock",
    "pack.yaml",
    ".mcp.json",
    ".claude/**",
    ".cursor/**",
    ".vscode/**",
    ".git/hooks/**",
    ".git/config",
    ".git/commondir",
)
"""What no write scope matches, at any depth; in a refusal these stand as the layer `protected`'s patterns."""

_PROTECTED_FILES = frozenset({"packhost.yaml", "packhost.lock", "pack.yaml", ".mcp.json"})
_PROTECTED_FOLDERS = frozenset({".claude", ".cursor", ".vscode"})
_PROTECTED_IN_GIT = frozenset({"hooks", "config", "config.worktree", "commondir"})
"""`commondir` names another folder from which git then takes its configuration and hooks."""


def protected(relative: str) -> bool:
    """Whether no write scope matches the path: what governs an agent is not the agent's to change.

    Names are compared at any depth and as a file system that folds case, form or trailing dots might
    take them, since that can only refuse more. `.git` itself counts too: whoever may put a file or
    a folder in its place has set its hooks. A path that is not clean is protected.
    """
    path = canonical(relative)
    if path is None:
        return True
    inside_git = False
    names = [_folded(name) for name in path.split("/")]
    for name in names:
        if name in _PROTECTED_FILES or name in _PROTECTED_FOLDERS:
            return True
        if inside_git and name in _PROTECTED_IN_GIT:
            return True
        inside_git = inside_git or name == ".git"
    return names[-1] == ".git"


def _folded(name: str) -> str:
    if not name.isascii():
        name = unicodedata.normalize("NFKC", "".join(c for c in name if not _ignorable(c)))
    return name.casefold().rstrip(". ")


def _ignorable(character: str) -> bool:
    # Some file systems drop these when they compare names.
    return (
        unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f" or character == "\u034f"
    )
