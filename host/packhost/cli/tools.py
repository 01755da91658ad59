"""`packhost tools`: what tools there are, what each one is, and which are withheld and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import pretty, print_facts, print_json, print_table


@click.group("tools", short_help="What tools there are, and which are withheld.", epilog=GROUP_EPILOG)
def command() -> None:
    """What tools there are, and which are withheld."""


@command.command("list", epilog=examples("packhost tools list", "packhost tools list --all --json"))
@click.option(
    "--all", "everything", is_flag=True, help="Also the tools that are withheld, and by what layer."
)
@workspace_option
@json_option
def list_tools(everything: bool, workspace: Path | None, as_json: bool) -> None:
    """List the tools on offer, each with what the workspace leaves of its scopes."""
    found = request(workspace, "tools.list", all=everything)
    if as_json:
        print_json(found)
        return
    print_table(
        ("TOOL", "PERMISSION", "SCOPES", "APPROVALS"),
        [_row(tool) for tool in found["tools"]],
        empty="no tool is on offer here: `packhost doctor` says why",
    )
    if found["withheld"]:
        click.echo("\nWithheld:")
        rows = [(held["tool"], held["layer"], held["reason"]) for held in found["withheld"]]
        print_table(("TOOL", "LAYER", "WHY"), rows, empty="")
    elif everything:
        click.echo("\nNo tool is withheld.")
    elif found["withheld_count"]:
        click.echo(f"\n{found['withheld_count']} withheld: `packhost tools list --all` says why.")


def _row(tool: dict[str, Any]) -> tuple[str, ...]:
    own = f"{tool['tool'].partition(':')[0]}:"
    return (
        tool["tool"] if tool["wire"] == tool["own_name"] else f"{tool['tool']}\non the wire {tool['wire']}",
        tool["permission"],
        "\n".join(tool["remaining"]) or "none",
        ", ".join(name.removeprefix(own) for name in tool["required_approvals"]) or "none",
    )


@command.command("show", epilog=examples("packhost tools show workspace:write_file"))
@click.argument("tool")
@workspace_option
@json_option
def show(tool: str, workspace: Path | None, as_json: bool) -> None:
    """Show one TOOL whole: scopes, layers, schemas."""
    found = request(workspace, "tools.show", tool=tool)
    if as_json:
        print_json(found)
        return
    pack = found["pack"]
    print_facts(
        [
            ("Tool", found["tool"]),
            ("Title", found["title"]),
            ("On the wire", _wire(found)),
            ("Description", found["description"].strip()),
            ("Pack", f"{pack['id']} {pack['version']}{', shipped' if pack['shipped'] else ''}"),
            ("Kind", found["kind"]),
            ("Permission", found["permission"]),
            ("Approvals", ", ".join(found["required_approvals"]) or "none"),
            ("Scopes", "\n".join(found["scopes"]) or "none"),
            (
                "Left of them",
                "\n".join(found["remaining"]) if found["remaining"] != found["scopes"] else None,
            ),
            ("Layers", "\n".join(_layer(layer) for layer in found["layers"])),
            ("Withheld by", found["withheld_by"]),
            ("Enforced", found["enforcement"]),
            ("Idempotent", "yes" if found["idempotent"] else "no"),
            ("Time-out", f"{found['timeout']:g} s"),
            ("Input", pretty(found["input_schema"])),
            ("Output", pretty(found["output_schema"]) if found["output_schema"] else "not declared"),
        ]
    )


def _wire(tool: dict[str, Any]) -> str:
    wire, own = tool["wire"], tool["own_name"]
    return str(wire) if wire == own else f"{wire}, by `names` in packhost.yaml; its own is {own}"


def _layer(layer: dict[str, Any]) -> str:
    place = f" ({layer['place']})" if layer["place"] else ""
    return f"{layer['name']}{place}: {', '.join(layer['scopes']) or 'nothing'}"
