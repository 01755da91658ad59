"""`packhost completion`: what makes a shell complete packhost's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from packhost.cli.options import examples
from packhost.cli.root import packhost

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    short_help="Print a shell's completion script.",
    epilog=examples('eval "$(packhost completion bash)"', "packhost completion fish | source"),
)
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete packhost's commands; evaluate it in its start file."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for `{shell}`")
    made = found(packhost, {}, "packhost", "_PACKHOST_COMPLETE")
    # The template alone: click's own `source` would first start a bash to ask for its version.
    click.echo(made.source_template % made.source_vars())
