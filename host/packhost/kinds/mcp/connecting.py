"""From a manifest's block to a greeted server: a process with its environment, or a URL with its headers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import packhost
from packhost.errors import PackhostError
from packhost.kinds.base import PackFacts
from packhost.kinds.mcp.peer import Gone, Peer, RpcError, Served
from packhost.kinds.mcp.pipes import Pipes, Words
from packhost.kinds.mcp.processes import Processes, located
from packhost.kinds.mcp.session import Era, NotSpoken, Session, greet
from packhost.manifest.upstream import PACK, UpstreamSpec, filled
from packhost.sandbox.level import Enforcement
from packhost.sandbox.probe import Proof
from packhost.sandbox.programs import closure

if TYPE_CHECKING:
    import httpx2

    from packhost.kinds.mcp.remote import Remote

_SYSTEM: Final = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/etc/mime.types",
    "/etc/ssl",
)
"""What any program needs to start, inside a sandbox."""


@dataclass(frozen=True, slots=True)
class Means:
    """What is needed to reach servers."""

    root: Path
    processes: Processes
    resolve: Callable[[str], str]
    """A secret's value by name."""
    proof: Callable[[], Proof | None]
    """What the kernel can enforce here."""
    state: Path | None = None
    """Where it is kept what a person signed in for."""
    redact: Callable[[str], str] = str
    """A text without the values of secrets that were given out."""


@dataclass(slots=True)
class Connection:
    """A greeted server and the way to it."""

    session: Session
    way: Pipes | Remote

    def let_go(self) -> None:
        """Close the server's input, if it is a process."""
        if isinstance(self.way, Pipes):
            self.way.let_go()

    async def close(self) -> None:
        """Leave the server, or end it."""
        self.session.leave()
        await self.way.close()


def level_of(upstream: UpstreamSpec, proof: Callable[[], Proof | None]) -> Enforcement:
    """How strongly a server is held to what was granted: one by URL is only ever sent requests."""
    if upstream.url is not None:
        return "host"
    found = proof() if upstream.sandbox == "kernel" else None
    return "advisory" if found is None else found.level


async def connect(
    pack: PackFacts, upstream: UpstreamSpec, means: Means, served: Served, words: Words, era: Era
) -> Connection:
    """Reach a server and agree on how to speak.

    Raises `Gone`, `RpcError` or `NotSpoken` as the server has it, `PackhostError` for what is wrong here.
    """
    secrets = {name: means.resolve(name) for name in upstream.secrets}
    if upstream.url is None:
        return await _run(pack, upstream, means, secrets, served, words, era)
    try:
        return await _reach(pack, upstream, means, secrets, served, era, events=upstream.transport == "sse")
    except (RpcError, Gone, NotSpoken):
        if upstream.transport != "auto" or era == "modern":
            raise
        first = None
        try:
            return await _reach(pack, upstream, means, secrets, served, "legacy", events=True)
        except (RpcError, Gone, NotSpoken) as error:
            first = error
    raise first


async def _run(
    pack: PackFacts,
    upstream: UpstreamSpec,
    means: Means,
    secrets: dict[str, str],
    served: Served,
    words: Words,
    era: Era,
) -> Connection:
    cwd = means.root / _at_home(upstream.cwd or ".")
    if not cwd.is_dir():
        raise PackhostError(
            f"the folder `{upstream.cwd}`, where the server of `{pack.id}` is started, does not exist",
            code="TOOL_FAILED",
            hint="make it, or correct `upstream.cwd` in the pack's manifest",
        )
    env = filled(tuple(upstream.env.items()), secrets)
    line = [text.replace(PACK, str(pack.folder or "")) for text in upstream.line]
    sandbox = _sandbox(pack, upstream, means, line[0], env, cwd)
    process = means.processes.start(line, env, cwd, sandbox)
    peer: Peer
    way = Pipes(
        means.processes, process, words, lambda message: peer.feed(message), lambda why: peer.lose(why)
    )
    peer = Peer(way.post, served)
    try:
        session = await greet(peer, era, asks=upstream.elicitation == "allow", over_http=False)
    except BaseException:
        means.processes.stop(process)
        raise
    return Connection(session, way)


def _at_home(path: str) -> str:
    return os.path.expanduser(path)


def _sandbox(
    pack: PackFacts, upstream: UpstreamSpec, means: Means, name: str, env: Mapping[str, str], cwd: Path
) -> dict[str, Any] | None:
    if upstream.sandbox == "none":
        return None
    proof = means.proof()
    if proof is None or proof.level == "advisory":
        why = f": {proof.detail}" if proof is not None else ""
        raise PackhostError(
            f"the server of `{pack.id}` is to run in a sandbox, which this system does not give{why}",
            code="ENFORCEMENT_UNAVAILABLE",
            hint="run it elsewhere, or have a person write `sandbox: none` and accept that",
        )
    program = located(name, env.get("PATH") or os.environ.get("PATH", os.defpath), cwd)
    own = () if pack.folder is None else (str(pack.folder),)
    paths = (*_SYSTEM, *own, *closure(program), *upstream.readable)
    readable = [path for path in paths if os.path.exists(path)]
    return {
        "packhost": str(Path(packhost.__file__).resolve().parents[1]),
        "readable": readable,
        "writable": list(upstream.writable),
        "abi": proof.abi,
    }


async def _reach(
    pack: PackFacts,
    upstream: UpstreamSpec,
    means: Means,
    secrets: dict[str, str],
    served: Served,
    era: Era,
    *,
    events: bool,
) -> Connection:
    from packhost.kinds.mcp.remote import Remote  # brings what only a server by URL needs

    peer: Peer
    auth: httpx2.Auth | None = None
    if upstream.auth is not None and means.state is not None:
        from packhost.kinds.mcp.signing import Kept, signer

        auth = signer(upstream, Kept(means.state, pack.id, upstream.url or ""), pack.id, secrets)
    way = Remote(
        upstream.url or "",
        filled(tuple(upstream.headers.items()), secrets),
        auth,
        events=events,
        peer=lambda: peer,
    )
    peer = Peer(way.post, served)
    try:
        await way.opened.wait()
        session = await greet(
            peer, "legacy" if events else era, asks=upstream.elicitation == "allow", over_http=True
        )
    except BaseException:
        await way.close()
        raise
    return Connection(session, way)
