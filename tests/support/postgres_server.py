"""PostgreSQL for tests: Debian's server in a folder of its own, one for all workers of a run.

    from postgres_server import STORES        # parameters `sqlite` and `postgres`, the latter marked `real`

    def test_it(postgres_url): ...            # the address of a workspace that nothing was written to
    def test_more(own_postgres): ...          # a server of this test alone: to stop, kill and restart

In a plain run without PostgreSQL the variants are not there; with `PACKHOST_REQUIRE_REAL=1` they fail.
The server ends with the last process that uses it, however that ends: a watcher holds the reading end of
a FIFO to which each of them keeps the writing end open. As root it runs as the user `postgres`.
"""

from __future__ import annotations

import fcntl
import importlib.util
import itertools
import os
import pwd
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REQUIRED = os.environ.get("PACKHOST_REQUIRE_REAL") == "1"
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
port = {port}
max_connections = 200
shared_buffers = 64MB
fsync = on
"""


def binaries() -> Path | None:
    """The folder with the newest PostgreSQL server installed here."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name)
    )
    if found:
        return found[-1].parent
    own = shutil.which("initdb")
    return Path(own).resolve().parent if own else None


AVAILABLE = binaries() is not None and importlib.util.find_spec("psycopg") is not None
STORES = ["sqlite"]
if AVAILABLE or REQUIRED:
    STORES.append(pytest.param("postgres", marks=pytest.mark.real))  # type: ignore[arg-type]


class Server:
    """A running server; `url` gives the address of one of its databases, made at first mention."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, self.password = (folder / "access").read_text().split()
        self.port = int(port)
        self._numbers = itertools.count(1)
        self._databases: set[str] = set()

    def url(self, database: str = "test", *, port: int = 0, user: str = "packhost") -> str:
        """The address of a workspace that nothing was written to, through another port where one is named."""
        if database not in self._databases:
            self._make(database)
        place = f"{user}:{self.password}@127.0.0.1:{port or self.port}/{database}"
        return f"postgresql://{place}?workspace=t{os.getpid()}-{next(self._numbers)}"

    def admin(self, database: str = "postgres") -> str:
        """How a superuser connects."""
        return f"host={self.folder} port={self.port} user=postgres dbname={database}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """What a superuser's statement gives."""
        import psycopg

        with psycopg.connect(self.admin(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it, and return once it answers."""
        _control(self.folder, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is a crash."""
        _control(self.folder, "stop", "-m", mode)

    def _make(self, database: str) -> None:
        if not self.sql(f"SELECT 1 FROM pg_database WHERE datname='{database}'"):
            self.sql(f'CREATE DATABASE "{database}" OWNER packhost')
        self._databases.add(database)


def _run(*command: str) -> None:
    program = binaries()
    assert program is not None, "PostgreSQL is not installed: tests/real/install.sh installs it"
    as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(
        [str(program / command[0]), *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        **as_user,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, (command, done.stdout)


def _control(folder: Path, *command: str) -> None:
    _run("pg_ctl", "-D", str(folder / "data"), "-w", "-t", "60", "-l", str(folder / "log"), *command)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def create() -> Path:
    """Make a server and start it; its folder."""
    folder = Path(tempfile.mkdtemp(prefix="packhost-pg-"))
    os.mkfifo(folder / "users", 0o600)
    password, port = secrets.token_hex(12), _free_port()
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    options = ["--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync", "--locale=C.UTF-8"]
    _run("initdb", "-D", str(folder / "data"), "-U", "postgres", *options)
    with open(folder / "data" / "postgresql.conf", "a") as file:
        file.write(SETTINGS.format(folder=folder, port=port))
    (folder / "access").write_text(f"{port} {password}")
    _control(folder, "start")
    os.posix_spawn(
        sys.executable,
        [sys.executable, __file__, str(folder)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)],
        setsid=True,
    )
    return folder


def _prepare(server: Server) -> None:
    server.sql(f"CREATE ROLE packhost LOGIN PASSWORD '{server.password}'")
    server._make("test")


@contextmanager
def own_server() -> Iterator[Server]:
    """A server that nobody else uses."""
    folder = create()
    end = os.open(folder / "users", os.O_WRONLY)
    try:
        server = Server(folder)
        _prepare(server)
        yield server
    finally:
        os.close(end)


@contextmanager
def shared_server(meeting: Path) -> Iterator[Server]:
    """The server of everybody who comes to this folder."""
    with open(meeting / "postgres.lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = meeting / "postgres.folder"
        end = -1
        if known.exists():
            try:
                end = os.open(Path(known.read_text()) / "users", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                known.unlink()
        if end < 0:
            folder = create()
            end = os.open(folder / "users", os.O_WRONLY)
            _prepare(Server(folder))
            (folder / "meeting").write_text(str(meeting))
            known.write_text(str(folder))
        server = Server(Path(known.read_text()))
    try:
        yield server
    finally:
        os.close(end)


def _watch(folder: Path) -> None:
    """Stop the server once nobody has it open any more."""
    end = os.open(folder / "users", os.O_RDONLY)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    while True:
        poll.poll()
        meeting = folder / "meeting"
        if not meeting.exists() or not Path(meeting.read_text()).exists():
            break
        with open(Path(meeting.read_text()) / "postgres.lock", "a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if poll.poll(0):  # nobody came meanwhile
                (Path(meeting.read_text()) / "postgres.folder").unlink(missing_ok=True)
                break
    try:
        _control(folder, "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of this run; for tests that leave it running."""
    base = tmp_path_factory.getbasetemp()
    meeting = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with shared_server(meeting) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The address of a workspace that nothing was written to, in a database of this worker."""
    return postgres_server.url(os.environ.get("PYTEST_XDIST_WORKER", "test"))


@pytest.fixture
def own_postgres() -> Iterator[Server]:
    """A server of this test alone, which it may stop, kill and restart."""
    with own_server() as server:
        yield server


if __name__ == "__main__":
    _watch(Path(sys.argv[1]))
