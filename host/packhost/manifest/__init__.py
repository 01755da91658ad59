"""A pack's manifest: its model, how it is read from YAML, and its JSON Schema."""
