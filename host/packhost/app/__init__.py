"""The composition root: from a folder to a running host. No other room wires rooms together."""

from packhost.app.entry import open_control, serve

__all__ = ["open_control", "serve"]
