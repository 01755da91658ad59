"""The boundary around what a handler touches: files by descriptor, and how strongly scopes hold."""

from __future__ import annotations

from packhost.sandbox.level import Enforcement, Requirement, satisfies

__all__ = ["Enforcement", "Requirement", "satisfies"]
