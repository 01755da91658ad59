"""What confined handlers try, run as whoever starts this script: `python escape_attempts.py FOLDER [ABI]`.

It sets a workspace up with everything that leads outside, listens on every kind of socket, runs each attempt
as a call of its own and prints, as JSON, what came of each and what it left behind. With ABI 0 nothing is
enforced, and only the harmless attempts are made: to show that they would go through.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from packhost.errors import PackhostError
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.python import PythonKind
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox.paths import FileBroker

SECRET = "outside the workspace"
INSIDE = ("path read out/**", "path write out/**")

PRELUDE = """
import asyncio, ctypes, errno, mmap, os, shutil, socket, subprocess, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[
        ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a
        for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""
"""Every attempt may use these; the calls by number are those of x86_64."""

REFUSED: dict[str, str] = {
    # files
    "read a file of the workspace that is not in scope": "open('src/main.py').read()",
    "read outside": "open(outside + '/secret').read()",
    "read /etc/passwd": "open('/etc/passwd').read()",
    "read by ..": "open('out/../src/main.py').read()",
    "read by .. out of the root": "open('out/../../outside/secret').read()",
    "read through a link to a file": "open('out/link').read()",
    "read through a link to a folder": "open('out/folder-link/secret').read()",
    "read through a link out of the links' folder": "open('out/up/outside/secret').read()",
    "read a hardlink that exists inside": "open('out/hard').read()",
    "write a hardlink that exists inside": "open('out/hard', 'r+').write('gone')",
    "truncate a hardlink that exists inside": "os.truncate('out/hard', 0)",
    "change the mode of a hardlink": "os.chmod('out/hard', 0o600)",
    "make a hardlink from outside": "os.link(outside + '/secret', 'out/hard2')",
    "make a link and read through it": "os.symlink('/etc/passwd', 'out/l2'); open('out/l2').read()",
    "read /proc/self/root": "open('/proc/self/root/etc/passwd').read()",
    "read /proc/self/environ": "open('/proc/self/environ').read()",
    "read the host's environment": "open(f'/proc/{host}/environ').read()",
    "read the host's memory": "open(f'/proc/{host}/mem', 'rb').read(1)",
    "list /proc/self/fd": "os.listdir('/proc/self/fd')",
    "list the root": "os.listdir('/')",
    "list outside": "os.listdir(outside)",
    "list the workspace": "os.listdir('.')",
    "write outside": "open(outside + '/new', 'w').write('x')",
    "write in the workspace out of scope": "open('src/new.py', 'w').write('x')",
    "append out of scope": "open('src/main.py', 'a').write('x')",
    "truncate outside": "os.truncate(outside + '/secret', 0)",
    "truncate by opening": "os.open(outside + '/secret', os.O_RDONLY | os.O_TRUNC)",
    "remove outside": "os.unlink(outside + '/secret')",
    "remove out of scope": "os.unlink('src/main.py')",
    "rename in from out of scope": "os.rename('src/main.py', 'out/main.py')",
    "rename out of scope": "os.rename('out/file', 'src/file')",
    "rename outside": "os.rename('out/file', outside + '/file')",
    "exchange two names": "call(316, -100, b'out/file', -100, b'src/main.py', 2)",
    "make a folder outside": "os.mkdir(outside + '/folder')",
    "make a folder out of scope": "os.mkdir('src/folder')",
    "make a pipe": "os.mkfifo('out/pipe2')",
    "open a pipe": "os.open('out/pipe', os.O_RDONLY | os.O_NONBLOCK)",
    "write a protected name": "open('out/packhost.yaml', 'w').write('x')",
    "make a protected folder": "os.makedirs('out/.claude/commands')",
    "rename to a protected name": "os.rename('out/file', 'out/.mcp.json')",
    "write git's hooks": "os.makedirs('out/.git/hooks')",
    "write the pack's own code": "open(pack + '/tools.py', 'a').write('x')",
    "write the standard library": "open(os.__file__, 'a').write('x')",
    "an anonymous file": "os.open('out', os.O_TMPFILE | os.O_RDWR, 0o600)",
    "a path descriptor": "os.open('src', os.O_PATH)",
    "openat2": "call(437, -100, b'src/main.py', ctypes.create_string_buffer(24), 24)",
    "creat": "call(85, b'src/new.py', 0o600)",
    "open by handle": "call(303, -100, b'out/file', *map(ctypes.create_string_buffer, (136, 4)), 0)",
    "a path that ends at unmapped memory": "call(2, 1 << 46, 0, 0)",
    "change the mode outside": "os.chmod(outside + '/secret', 0o777)",
    "change the mode out of scope": "os.chmod('src/main.py', 0o777)",
    "change the mode by descriptor": "os.fchmod(os.open(os.__file__, os.O_RDONLY), 0o777)",
    "lend an identity": "os.chmod('out/file', 0o4755)",
    "change the owner": "os.chown('out/file', 0, 0)",
    "change times outside": "os.utime(outside + '/secret', (0, 0))",
    "change times out of scope": "os.utime('src/main.py', (0, 0))",
    "set an attribute": "os.setxattr('out/file', 'user.x', b'1')",
    "set a file's flags": "__import__('fcntl').ioctl(os.open('out/file', 0), 0x40086602, b'\\0' * 8)",
    "mount": "libc.mount(b'none', b'out', b'tmpfs', 0, None) == 0 or call(165, 0, 0, 0, 0, 0)",
    "chroot": "os.chroot('out')",
    "watch files": "call(294, 0)",
    # networks
    "TCP": "socket.create_connection(('127.0.0.1', tcp))",
    "TCP, bind": "socket.socket().bind(('127.0.0.1', 0))",
    "TCP, listen without bind": "socket.socket().listen()",
    "TCP Fast Open": "socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', tcp))",
    "MPTCP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', tcp))",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', udp))",
    "UDP over IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', udp))",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "vsock": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "a unix socket by name, outside": "socket.socket(socket.AF_UNIX).connect(outside + '/socket')",
    "a unix socket by name, inside": "socket.socket(socket.AF_UNIX).connect('out/socket')",
    "an abstract unix socket": "socket.socket(socket.AF_UNIX).connect('\\0' + abstract)",
    "a datagram out of a pair": "pair(socket.SOCK_DGRAM).sendto(b'x', outside + '/datagrams')",
    "a datagram out of a raw pair": "pair(socket.SOCK_RAW).sendto(b'x', outside + '/datagrams')",
    "a pair connected to another": "pair(socket.SOCK_STREAM).connect(outside + '/socket')",
    "a packet pair connected to another": "pair(socket.SOCK_SEQPACKET).connect(outside + '/socket')",
    "a pair with a name": "pair(socket.SOCK_STREAM).bind('\\0x')",
    "the host's connection led elsewhere": "socket.socket(fileno=os.dup(3)).connect(outside + '/socket')",
    "a pair of another family": "socket.socketpair(socket.AF_INET)",
    "looking a name up": "socket.getaddrinfo('localhost', 80)",
    "io_uring": "call(425, 8, ctypes.create_string_buffer(120))",
    # other processes
    "signal the host": "os.kill(host, 0)",
    "signal the zygote": "os.kill(os.getppid(), 0)",
    "signal another process": "os.kill(victim, 9)",
    "signal everybody": "os.kill(-1, 0)",
    "signal the group": "os.killpg(os.getpgid(0), 0)",
    "signal a thread of another": "call(200, victim, 0)",
    "queue a signal": "call(129, victim, 9, ctypes.create_string_buffer(128))",
    "signal by descriptor": "__import__('signal').pidfd_send_signal(os.pidfd_open(os.getpid()), 0)",
    "be signalled for another": "__import__('fcntl').fcntl(0, 8, victim)",
    "trace the host": "call(101, 16, host, 0, 0)",
    "read another's memory": "call(310, host, 0, 0, 0, 0, 0)",
    "steal a descriptor": "call(438, os.pidfd_open(os.getpid()), 0, 0)",
    "change the host's limits": "__import__('resource').prlimit(host, 7, (3, 3))",
    "another's priority": "os.setpriority(os.PRIO_PROCESS, victim, 19)",
    "another's processors": "os.sched_setaffinity(victim, {0})",
    "shared memory of the system": "call(29, 1234, 4096, 0o1666)",
    "a message queue": "call(240, b'/packhost-test', 0o102, 0o600, 0)",
    "outlive the zygote": "libc.prctl(1, 0, 0, 0, 0) == 0 or call(157, 1, 0, 0, 0, 0)",
    "a session of its own": "os.setsid()",
    "a group of its own": "os.setpgid(0, 0)",
    # new processes and privileges
    "fork": "os.fork() or os._exit(0)",
    "vfork": "call(58)",
    "clone": "call(56, 17, 0, 0, 0, 0) or os._exit(0)",
    "clone3": "call(435, ctypes.create_string_buffer(88), 88)",
    "exec": "os.execv('/bin/true', ['true'])",
    "subprocess": "subprocess.run(['/bin/true'])",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "a program in memory": "os.memfd_create('x')",
    "exec by descriptor": "call(322, 0, b'', 0, 0, 0x1000)",
    "a network namespace": "call(272, 0x40000000)",
    "a user namespace": "call(272, 0x10000000)",
    "enter a namespace": "call(308, 0, 0)",
    "bpf": "call(321, 0, 0, 0)",
    "keys": "call(250, 0, 0, 0, 0, 0)",
    "performance events": "call(298, 0, 0, 0, 0, 0)",
    "userfaultfd": "call(323, 0)",
    "become root": "os.setuid(0) if os.getuid() else os.setgid(12345)",
    "raise a limit": "__import__('resource').setrlimit(7, (1 << 20, 1 << 20))",
    "core dumps": "__import__('resource').setrlimit(4, (1 << 20, 1 << 20))",
    "a call that does not exist yet": "call(600)",
    "threads are held too": """
found = []
def read():
    for use in (lambda: open('/etc/passwd'), lambda: socket.socket(), os.fork):
        try:
            found.append(use())
        except OSError:
            pass
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if not found: raise PermissionError(13, 'every thread was refused')
""",
    "a second restriction does not widen": """
import struct
ruleset = call(444, struct.pack('=Q', 1 << 2), 8, 0)
root = os.open('out', os.O_RDONLY)
call(446, ruleset, 0)
open('/etc/passwd').read()
""",
    "swap a folder for a link while it is opened": """
import random
os.makedirs('out/race/inner', exist_ok=True)
open('out/race/inner/secret', 'w').write('mine')
deadline, seen, stop = time.monotonic() + 1.0, set(), []
def swap():
    while not stop:
        try:
            os.rename('out/race', 'out/race-away'); os.rename('out/race-away', 'out/race')
        except OSError: pass
other = threading.Thread(target=swap); other.start()
while time.monotonic() < deadline:
    for path in ('out/race/inner/secret', 'out/race/../../outside/secret', 'out/folder-link/secret'):
        try: seen.add(open(path).read())
        except OSError: pass
stop.append(1); other.join()
if seen <= {'mine', ''}: raise PermissionError(13, 'nothing else was ever read')
""",
}
"""By name, what must not work: an expression or statements; they may use the names in `arguments`."""

HARMLESS = (
    "read a file of the workspace that is not in scope",
    "read outside",
    "read /etc/passwd",
    "read through a link to a file",
    "read a hardlink that exists inside",
    "read /proc/self/environ",
    "list the root",
    "TCP",
    "MPTCP",
    "UDP",
    "a unix socket by name, outside",
    "a unix socket by name, inside",
    "an abstract unix socket",
    "a datagram out of a pair",
    "a datagram out of a raw pair",
    "looking a name up",
    "signal the host",
    "fork",
    "subprocess",
    "a program in memory",
    "change the mode of a hardlink",
)
"""Those that may be made where nothing is enforced; they must go through there."""

ALLOWED: dict[str, tuple[str, Any]] = {
    "read": ("result = open('out/file').read()", "file"),
    "write, rename, list": (
        "open('out/new', 'w').write('x'); os.replace('out/new', 'out/sub/new')\n"
        "result = os.listdir('out/sub')",
        ["new"],
    ),
    "rename in place of a file": (
        "open('out/a', 'w').write('a'); open('out/b', 'w').write('b'); os.replace('out/a', 'out/b'); "
        "result = open('out/b').read()",
        "a",
    ),
    "make and remove folders": (
        "os.makedirs('out/x/y/z'); shutil.move('out/x/y', 'out/moved'); shutil.rmtree('out/x'); "
        "result = os.path.isdir('out/moved/z')",
        True,
    ),
    "shutil.copy": ("shutil.copy('out/file', 'out/copy'); result = open('out/copy').read()", "file"),
    "shutil.copy2": (
        "os.utime('out/file', (1000, 2000)); shutil.copy2('out/file', 'out/copy2'); "
        "result = os.stat('out/copy2').st_mtime",
        2000.0,
    ),
    "shutil.copytree": (
        "os.makedirs('out/tree/a'); open('out/tree/a/f', 'w').write('t')\n"
        "shutil.copytree('out/tree', 'out/tree2'); result = open('out/tree2/a/f').read()",
        "t",
    ),
    "change the mode inside": (
        "os.chmod('out/file', 0o640); result = os.stat('out/file').st_mode & 0o777",
        0o640,
    ),
    "sqlite with a write-ahead log": (
        "import sqlite3; c = sqlite3.connect('out/x.db'); c.execute('pragma journal_mode=wal'); "
        "c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit(); "
        "result = c.execute('select count(*) from t').fetchall()",
        [[1]],
    ),
    "temporary files": ("result = tempfile.mkstemp()[1].startswith(os.getcwd() + '/out/')", True),
    "append and seek": (
        "f = open('out/log', 'a+'); f.write('one'); f.close(); f = open('out/log', 'a+'); f.write('two'); "
        "f.seek(0); result = f.read()",
        "onetwo",
    ),
    "a pair of sockets": ("a, b = socket.socketpair(); a.send(b'x'); result = b.recv(1).decode()", "x"),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as pool: result = sum(pool.map(lambda n: n, range(10)))",
        45,
    ),
    "asyncio": (
        "async def wait(): await asyncio.sleep(0); return 5\n"
        "result = [None]\nt = threading.Thread(target=lambda: result.__setitem__(0, asyncio.run(wait())))\n"
        "t.start(); t.join()",
        [5],
    ),
    "randomness": ("import secrets, uuid; result = len(secrets.token_hex(4)) + len(str(uuid.uuid4()))", 44),
    "late imports": (
        "import xml.dom.minidom as m; result = m.parseString('<a/>').documentElement.tagName",
        "a",
    ),
    "/dev/null": ("open('/dev/null', 'w').write('x'); result = open('/dev/null').read()", ""),
    "signal itself": ("result = os.kill(os.getpid(), 0)", None),
    "no environment": ("result = dict(os.environ).keys() <= {'LANG', 'TMPDIR', 'LC_CTYPE'}", True),
    "no capabilities": (
        "buffer = ctypes.create_string_buffer(24); "
        "libc.capget(__import__('struct').pack('=Ii', 0x20080522, 0), buffer); result = any(buffer.raw)",
        False,
    ),
    "no descriptors": ("result = [n for n in range(4, 1024) if _is_open(n)]", []),
}
"""By name, statements that must work and leave `result`, and what it must be."""

HELPERS = """
def pair(kind):
    return socket.socketpair(socket.AF_UNIX, kind)[0]
def _is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False
"""


@dataclass
class Context:
    """The least that a call needs."""

    files: FileBroker
    layers: tuple[Layer, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    tool: str = "pack:tool"
    call_id: str = "call_1"
    run_id: str = "run_1"
    session_id: str = "session"
    principal: str = "somebody"
    client: str = "a client"
    host: None = None


def layers_of(*lines: str) -> tuple[Layer, ...]:
    return (
        Layer("bound", tuple(parse_scope(line) for line in ("path read **", "path write **", *lines))),
    ) * 2


def tool_of(folder: Path, body: str, scopes: tuple[str, ...]) -> Tool:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tools.py").write_text(body)
    spec = ToolSpec(
        name="tool", description="A tool.", kind="python", target="tools:handle", permission="write"
    )
    pack = PackFacts("pack", "1", "Pack", str(folder), folder, False, False, None)
    return Tool(ToolId("pack", "tool"), spec, pack, tuple(parse_scope(line) for line in scopes), "1")


def refused_source(code: str) -> str:
    code = code.strip()
    statements = (
        code if "\n" in code else f"went = {code}" if _is_expression(code) else f"{code}; went = None"
    )
    return (
        PRELUDE
        + HELPERS
        + "def handle(context, arguments):\n"
        + "    globals().update(arguments)\n    went = None\n    try:\n"
        + textwrap.indent(statements, " " * 8)
        + "\n    except (OSError, ValueError) as error:\n"
        + "        return {'refused': f'{type(error).__name__}: {error}'}\n"
        + "    return {'went': repr(went)[:200]}\n"
    )


def allowed_source(code: str) -> str:
    return (
        PRELUDE
        + HELPERS
        + "def handle(context, arguments):\n    globals().update(arguments)\n"
        + textwrap.indent(code, " " * 4)
        + "\n    return {'result': result}\n"
    )


def _is_expression(code: str) -> bool:
    try:
        compile(code, "attempt", "eval")
    except SyntaxError:
        return False
    return True


def lay_out(base: Path) -> Path:
    root, outside = base / "workspace", base / "outside"
    for folder in (root / "src", root / "out" / "sub", outside):
        folder.mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    (root / "src" / "main.py").write_text("main")
    (root / "out" / "file").write_text("file")
    (root / "out" / "link").symlink_to(outside / "secret")
    (root / "out" / "folder-link").symlink_to(outside)
    (root / "out" / "up").symlink_to("../..")
    os.link(outside / "secret", root / "out" / "hard")
    os.mkfifo(root / "out" / "pipe")
    return root


def listen(root: Path, outside: Path) -> tuple[list[socket.socket], dict[str, Any]]:
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    abstract = f"packhost-{os.getpid()}"
    unix = []
    for name in ("\0" + abstract, str(outside / "socket"), str(root / "out" / "socket")):
        one = socket.socket(socket.AF_UNIX)
        one.bind(name)
        one.listen()
        unix.append(one)
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(str(outside / "datagrams"))
    listeners = [tcp, udp, datagrams, *unix]
    for one in listeners:
        one.setblocking(False)
    return listeners, {
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "abstract": abstract,
        "outside": str(outside),
    }


def heard(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(1)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def attempt_all(base: Path, abi: int | None) -> dict[str, Any]:
    root, outside = lay_out(base), base / "outside"
    listeners, arguments = listen(root, outside)
    before = (outside / "secret").stat()
    victim = subprocess.Popen(["sleep", "600"])
    arguments |= {"victim": victim.pid, "host": os.getpid(), "pack": str(base / "pack" / "0")}
    kind = PythonKind(root, abi=abi)
    descriptor = os.open(root, os.O_RDONLY)
    layers = layers_of()
    context = Context(
        FileBroker(descriptor, layers[:1]), (layers[0], Layer("manifest", tuple(map(parse_scope, INSIDE))))
    )
    outcomes: dict[str, Any] = {}
    sources = {name: refused_source(code) for name, code in REFUSED.items() if abi != 0 or name in HARMLESS}
    sources |= {} if abi == 0 else {name: allowed_source(code) for name, (code, _) in ALLOWED.items()}
    for number, (name, source) in enumerate(sources.items()):
        tool = tool_of(base / "pack" / str(number), source, INSIDE)
        try:
            with anyio.fail_after(20):
                outcomes[name] = await kind.run(tool, arguments, context)
        except PackhostError as error:
            outcomes[name] = {"error": error.code, "message": error.message}
    level = kind.enforcement(tool)
    await kind.close()
    after = (outside / "secret").stat()
    left = {
        "user": os.getuid(),
        "level": level,
        "victim killed": victim.poll() is not None,
        "heard": [str(listener.getsockname()) for listener in listeners if heard(listener)],
        "outside": sorted(os.listdir(outside)),
        "secret": (outside / "secret").read_text(),
        "secret's state": [
            getattr(before, n) == getattr(after, n) for n in ("st_mode", "st_uid", "st_mtime_ns", "st_size")
        ],
        "source": (root / "src" / "main.py").read_text(),
        "in source": sorted(os.listdir(root / "src")),
        "protected": sorted(
            n for n in os.listdir(root / "out") if n in (".claude", ".mcp.json", ".git", "packhost.yaml")
        ),
    }
    victim.kill()
    victim.wait()
    for listener in listeners:
        listener.close()
    os.close(descriptor)
    return {"outcomes": outcomes, "left": left}


if __name__ == "__main__":
    print(
        json.dumps(
            anyio.run(attempt_all, Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None),
            default=repr,
        )
    )
