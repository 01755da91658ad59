"""A workspace: its root and state folder, `packhost.yaml`, what was consented to, and secrets."""
