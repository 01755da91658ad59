"""The boundary around what a handler touches: files by descriptor, and how strongly scopes hold."""

from __future__ import annotations

from packhost.sandbox.level import Enforcement, Requirement, handler_level, satisfies

__all__ = ["Enforcement", "Requirement", "handler_level", "satisfies"]
