"""The `workspace` pack: reading, searching and changing the files of a workspace."""
