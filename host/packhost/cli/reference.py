"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from packhost.docgen.markdown import code, in_cell

_HEAD = """\
# The command line

Generated from the commands by `packhost docs build --reference docs`. Every command takes `-h`/`--help`;
`-w` may also stand before the command. Where `--json` is given, stdout holds one JSON document, for an error
`{"error": {"code", "message", "next"}}`.

| Exit code | Meaning |
| --- | --- |
| 0 | ok |
| 1 | the tool failed, or a check found something |
| 2 | usage or configuration |
| 3 | refused |
| 4 | a person's approval is required |
"""


def command_reference(root: click.Command) -> str:
    """A section for every command that can be run, in the order of the help."""
    context = click.Context(root, info_name="packhost")
    return "\n".join([_HEAD, *_sections(root, context)])


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield _section(command, context)
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _sections(found, click.Context(found, context, info_name=name))


def _section(command: click.Command, context: click.Context) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"## {code(context.command_path)}", "", f"```\n{' '.join(usage.split())}\n```", ""]
    parts += [_prose(command.help or ""), ""]
    rows = [row for row in map(_option, command.get_params(context)) if row]
    if rows:
        parts += ["| Option | What it does |", "| --- | --- |", *rows, ""]
    if command.epilog:
        lines = [line.strip() for line in command.epilog.replace("\b", "").splitlines()]
        parts += ["```console", *(f"$ {line}" for line in lines if line and line != "Examples:"), "```", ""]
    return "\n".join(parts)


def _prose(text: str) -> str:
    paragraphs = text.replace("\b", "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _option(parameter: click.Parameter) -> str | None:
    if not isinstance(parameter, click.Option) or parameter.hidden or "--help" in parameter.opts:
        return None
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    names = ", ".join(code(f"{name}{value}") for name in parameter.opts)
    shown = f" Default: {parameter.default}." if parameter.show_default else ""
    return f"| {in_cell(names)} | {in_cell((parameter.help or '') + shown)} |"


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "NUMBER" if isinstance(option.type, click.types.IntParamType) else "TEXT"
