"""What `packhost adopt` says: of what was found, of what is proposed, of what was done."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click

from packhost.characters import visible
from packhost.clients.adopting import Candidate, Plan
from packhost.clients.forms import TITLES, ClientFile
from packhost.clients.keeping import Change
from packhost.clients.manifests import ProposedTool
from packhost.clients.servers import Server
from packhost.workspace.root import CONFIG_FILE

Say = Callable[[str], object]
_NAMED: Final = 12
"""Tools of one permission that are named; the others are counted."""
_DOUBTS: Final = 12


def say_found(found: Sequence[Candidate], say: Say) -> None:
    """The servers of each file, with what would be run, and the secrets that stay where they are."""
    for line in _found(found):
        say(line)


def _found(found: Sequence[Candidate]) -> Iterator[str]:
    for file in dict.fromkeys(one.file for one in found):
        mine = [one for one in found if one.file is file]
        yield f"{file.named} ({TITLES[file.client]}{_leads(file)}):"
        width = max(len(_line(one.name)) for one in mine)
        for one in mine:
            yield f"  {_line(one.name).ljust(width)}  {_what(one)}"
            for more in _more(one):
                yield f"  {' ' * width}  {more}"
        for section in file.sections:
            for name in file.twice(section):
                yield f"  `{_line(name)}` stands there twice: the last one counts, as for the client"


def _leads(file: ClientFile) -> str:
    """Where a link leads: what is changed is not in the project then."""
    there = _line(str(file.path))
    return "" if os.path.abspath(file.named.expanduser()) == str(file.path) else f", a link to {there}"


def _what(one: Candidate) -> str:
    if one.server is None or one.problem:
        return f"stays as it was: {_line(one.problem)}"
    if one.same_as is not None:
        return f"the same server as in {one.same_as.file.named}"
    secrets = ", ".join(secret.name for secret in one.server.secrets)
    return _line(one.server.where) + (f"   (kept secret: {secrets})" if secrets else "")


def _more(one: Candidate) -> Iterator[str]:
    if one.hint:
        yield f"({_line(one.hint)})"
    if one.server is not None and not one.problem and one.same_as is None:
        yield from _circumstances(one.server)


def what_runs(server: Server) -> Iterator[str]:
    """What is run or reached, a line each, whatever a client's file says."""
    yield _line(server.where)
    yield from _circumstances(server)


def _circumstances(server: Server) -> Iterator[str]:
    """What else decides what is run: a variable can make a harmless command load any code."""
    if server.cwd is not None:
        yield f"in {_line(server.cwd)}"
    for name, value in server.env.items():
        yield f"with {_line(name)}={_line(value)}"
    for name, value in server.headers.items():
        yield f"with the header {_line(name)}: {_line(value)}"


def _line(text: str) -> str:
    """A text of a client's file, which may be anybody's, on one line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def say_proposed(found: Sequence[Candidate], say: Say) -> None:
    """What each server's tools would be allowed, and what to look at before."""
    for one in found:
        for line in _proposed(one):
            say(line)


def _proposed(one: Candidate) -> Iterator[str]:
    name = click.style(_line(one.name), bold=True)
    if one.same_as is not None and one.adopted:
        return
    if one.pack is None:
        yield f"{name}: stays as it was: {_line(one.problem)}"
        return
    tools = one.pack.tools
    counts = Counter(tool.proposal.permission for tool in tools)
    said = ", ".join(f"{counts[one]} {one}" for one in ("read", "write", "admin") if counts[one])
    yield f"{name}: {len(tools)} tools ({said or 'none'}), as the pack `{one.pack.id}`"
    for permission in ("read", "write", "admin"):
        names = [_tool(tool) for tool in tools if tool.proposal.permission == permission]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield f"  {permission.ljust(5)}  {', '.join(names[:_NAMED])}{more}"
    for original, why in one.pack.left_out:
        yield f"  left out: `{_line(original)}`: {_line(why)}"
    for doubt in one.doubts[:_DOUBTS]:
        mark = click.style("! ", fg="yellow")
        yield f"  {mark}{_line(doubt.key.partition(':')[2])}: {_line(doubt.text)}"
    if len(one.doubts) > _DOUBTS:
        yield f"  ! and {len(one.doubts) - _DOUBTS} more doubts"


def _tool(tool: ProposedTool) -> str:
    return f"{tool.name}*" if tool.notes else tool.name


def say_changes(found: Sequence[Candidate], planned: Plan, change: Change) -> None:
    """What was written, what is withheld, and the way back."""
    adopted = [one for one in found if one.adopted]
    stays = [one for one in found if not one.adopted]
    click.echo("")
    manifests = f"{len(planned.packs)} manifest{'s' * (len(planned.packs) != 1)}"
    click.echo(f"wrote {CONFIG_FILE} and {manifests} below .packhost/, and accepted them")
    for file in dict.fromkeys(one.file for one in adopted):
        others = [_line(one.name) for one in stays if one.file is file]
        beside = f", beside {', '.join(others)}" if others else ""
        click.echo(f"{file.named} now starts packhost{beside or ' alone'}")
    if planned.undecided:
        packs = ", ".join(f"`{pack}`" for pack in planned.undecided)
        click.echo(
            f"withheld until you have looked at them (`packhost accept`): what raises doubts in {packs}"
        )
    missing = sorted(
        {
            secret.variable
            for one in adopted
            if one.server
            for secret in one.server.secrets
            if not secret.standing
        }
    )
    if missing:
        click.echo(f"start your client with {', '.join(missing)} in its environment, as before")
    click.echo(f"the files as they were are in {change.folder}")
    click.echo("take it back: packhost adopt --undo")
