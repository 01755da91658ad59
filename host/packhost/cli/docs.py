"""`packhost docs`: the reference pages of packs, and of the command line and file formats."""

from __future__ import annotations

from pathlib import Path

import click

from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.reference import command_reference
from packhost.cli.root import packhost
from packhost.cli.run import FAILED, OK
from packhost.docgen.build import Page, drift, write
from packhost.docgen.models import model_reference
from packhost.docgen.pack import pack_page
from packhost.docgen.traces import trace_reference
from packhost.docgen.workspace import enabled_manifests, shipped_manifests
from packhost.manifest.model import PackManifest
from packhost.workspace.root import CONFIG_FILE, Root, find_root
from packhost.workspace.settings import Settings

_OUT = Path("docs/packs")


@click.group("docs", short_help="Reference pages of packs.", epilog=GROUP_EPILOG)
def command() -> None:
    """Reference pages of packs."""


@command.command(
    "build",
    epilog=examples(
        "packhost docs build", "packhost docs build --check", "packhost docs build --reference docs"
    ),
)
@click.option(
    "--check", is_flag=True, help="Write nothing; print what has drifted and exit with 1 if anything has."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Where the packs' pages go; left out, {_OUT} of the workspace.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write there the reference of the command line, packhost.yaml and manifests.",
)
@workspace_option
@json_option
@click.pass_context
def build(
    ctx: click.Context,
    check: bool,
    out: Path | None,
    reference: Path | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Write a page for each pack, from its manifest; notes outside a page's managed block survive.

    Where there is a packhost.yaml the packs are those that the workspace enables, else every shipped one.
    """
    root = find_root(workspace or Path.cwd())
    folder = out or root / _OUT
    pages = [Page(folder / f"{manifest.id}.md", pack_page(manifest)) for manifest in _manifests(root)]
    if reference is not None:
        pages += reference_pages(reference)
    if check:
        found = drift(pages, root)
        if as_json:
            print_json({"fresh": not found, "diff": found})
        else:
            click.echo(found or f"{len(pages)} pages, none has drifted", nl=not found)
        ctx.exit(FAILED if found else OK)
    written = write(pages)
    if as_json:
        print_json({"pages": [str(page.path) for page in pages], "written": [str(path) for path in written]})
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(f"{len(pages)} pages, {len(pages) - len(written)} of them as they were")


def _manifests(root: Path) -> list[PackManifest]:
    if not (root / CONFIG_FILE).exists():
        return shipped_manifests()
    with Root(root) as opened:
        return enabled_manifests(opened)


def reference_pages(folder: Path) -> list[Page]:
    """The pages on packhost itself: its commands, the two files that people write, and traces."""
    return [
        Page(folder / "cli.md", command_reference(packhost)),
        Page(folder / "packhost-yaml.md", f"{_FILE}\n{model_reference(Settings)}"),
        Page(folder / "manifest.md", f"{_MANIFEST}\n{model_reference(PackManifest)}"),
        Page(folder / "agent-runtime" / "trace.md", trace_reference()),
    ]


_FILE = """\
# packhost.yaml

Generated from the model of the file by `packhost docs build --reference docs`. A key that is left out has
its default, so that a short file is never wider than none. Besides these keys, an enabled pack may own a
section, named by its manifest's `config_key`. A time is a number of seconds or a text such as `10m`, a size a
number of bytes or a text such as `4MiB`.
"""
_MANIFEST = """\
# A pack's manifest

Generated from the model of a manifest by `packhost docs build --reference docs`. A manifest is
`manifests/<pack>.yaml` for the packs that come with packhost and `pack.yaml` for any other; an unknown key,
scope or kind is an error that names file, line and the nearest right word. A time is a number of seconds or
a text such as `10m`. [Write a pack](writing-a-pack.md) goes through one, handlers included.
"""
