"""The command line: a command, or a group of commands, a file."""

from packhost.cli.run import main

__all__ = ["main"]
