"""Packs: found by entry point or in a folder without importing them, held in an immutable registry."""
