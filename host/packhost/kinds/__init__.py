"""Kinds of tools: what runs a call once the gate has let it through."""
