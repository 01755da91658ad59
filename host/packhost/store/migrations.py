"""The schema, as numbered lists of statements with recorded checksums.

A number's statements never change once they were released; a change is a new number. A database
that is newer than this packhost is refused, an older one is copied first and then brought up in
one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packhost.errors import PackhostError, StoreUnavailable
from packhost.journal import canonical, digest

_EXECUTIONS = (
    """CREATE TABLE executions(
  id TEXT PRIMARY KEY, workspace TEXT NOT NULL, kind TEXT NOT NULL, session_id TEXT NOT NULL,
  principal TEXT NOT NULL, client TEXT NOT NULL, parent TEXT, agent TEXT,
  status TEXT NOT NULL CHECK(status IN
    ('queued','running','paused','interrupted','completed','failed','aborted')),
  outcome TEXT, owner TEXT, epoch INTEGER NOT NULL, lease_until REAL,
  pause_requested INTEGER NOT NULL DEFAULT 0, paused_by TEXT, abort_requested INTEGER NOT NULL DEFAULT 0,
  reason TEXT, waiting_on TEXT, created_at REAL NOT NULL, updated_at REAL NOT NULL, ended_at REAL,
  spec_json TEXT NOT NULL, state_json TEXT, result_json TEXT) WITHOUT ROWID""",
    "CREATE INDEX executions_live ON executions(lease_until) WHERE status IN ('running','queued')",
    "CREATE INDEX executions_runs ON executions(id) WHERE kind<>'call'",
    "CREATE INDEX executions_session ON executions(session_id) WHERE kind<>'call'",
)
_CALLS = (
    """CREATE TABLE calls(
  id TEXT NOT NULL UNIQUE, execution_id TEXT NOT NULL REFERENCES executions(id), step INTEGER NOT NULL,
  epoch INTEGER NOT NULL, tool TEXT NOT NULL, tool_version TEXT NOT NULL, args_json TEXT NOT NULL,
  args_digest TEXT NOT NULL, idempotent INTEGER NOT NULL, idem_key TEXT, tool_use_id TEXT,
  approval_id TEXT REFERENCES approvals(id), grant_id TEXT REFERENCES grants(id), enforcement TEXT,
  status TEXT NOT NULL CHECK(status IN ('started','ok','error','unknown')),
  code TEXT, result_json TEXT, started_at REAL NOT NULL, ended_at REAL,
  PRIMARY KEY(execution_id, step)) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX calls_idem_key ON calls(idem_key) WHERE idem_key IS NOT NULL",
)
_APPROVALS = (
    """CREATE TABLE approvals(
  id TEXT PRIMARY KEY, workspace TEXT NOT NULL, execution_id TEXT, run_id TEXT, session_id TEXT NOT NULL,
  principal TEXT NOT NULL, client TEXT NOT NULL, tool TEXT NOT NULL, tool_version TEXT NOT NULL,
  binding TEXT NOT NULL, names_json TEXT NOT NULL, assurance TEXT NOT NULL CHECK(assurance IN
    ('client','operator')),
  approvers_needed INTEGER NOT NULL, prompt TEXT NOT NULL, args_json TEXT NOT NULL,
  status TEXT NOT NULL CHECK(status IN ('pending','approved','denied','expired','cancelled')),
  answers_json TEXT NOT NULL, decided_by TEXT, decided_channel TEXT, reason TEXT, decided_at REAL,
  expires_at REAL NOT NULL, consumed_by TEXT UNIQUE, created_at REAL NOT NULL)""",
    "CREATE INDEX approvals_binding ON approvals(binding, id)",
    "CREATE INDEX approvals_pending ON approvals(expires_at) WHERE status='pending'",
    "CREATE INDEX approvals_run ON approvals(run_id) WHERE run_id IS NOT NULL AND status='pending'",
)
_GRANTS = (
    """CREATE TABLE grants(
  id TEXT PRIMARY KEY, workspace TEXT NOT NULL, principal TEXT, agent TEXT, tool TEXT NOT NULL,
  tool_version TEXT NOT NULL, match_json TEXT NOT NULL, created_by TEXT NOT NULL, created_at REAL NOT NULL,
  expires_at REAL, revoked_at REAL, uses INTEGER NOT NULL, max_uses INTEGER)""",
    "CREATE INDEX grants_tool ON grants(tool) WHERE revoked_at IS NULL",
)
_SESSIONS = (
    """CREATE TABLE sessions(
  id TEXT PRIMARY KEY, workspace TEXT NOT NULL, principal TEXT NOT NULL, client TEXT NOT NULL, parent TEXT,
  level TEXT NOT NULL CHECK(level IN ('observe','supervised','guarded','autonomous')),
  level_expires_at REAL, level_before TEXT, created_at REAL NOT NULL, updated_at REAL NOT NULL)""",
    "CREATE INDEX sessions_parent ON sessions(parent) WHERE parent IS NOT NULL",
    """CREATE TABLE session_messages(
  session_id TEXT NOT NULL REFERENCES sessions(id), seq INTEGER NOT NULL, run_id TEXT,
  message_json TEXT NOT NULL, PRIMARY KEY(session_id, seq))""",
)
_EVENTS = (
    """CREATE TABLE events(
  id INTEGER PRIMARY KEY, workspace TEXT NOT NULL, execution_id TEXT, call_id TEXT, type TEXT NOT NULL,
  actor TEXT NOT NULL, data_json TEXT, data_sha TEXT NOT NULL, ts REAL NOT NULL, prev TEXT NOT NULL,
  hash TEXT NOT NULL)""",
    "CREATE INDEX events_execution ON events(execution_id, id) WHERE execution_id IS NOT NULL",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    statements: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """What is recorded of it, and compared at every start."""
        return digest(canonical(self.statements))


_OPERATORS = (
    """CREATE TABLE operators(
  id INTEGER PRIMARY KEY, workspace TEXT NOT NULL, fingerprint TEXT NOT NULL, public_key TEXT NOT NULL,
  set_by TEXT NOT NULL, set_at REAL NOT NULL, ended_at REAL)""",
    "CREATE INDEX calls_approval ON calls(approval_id) WHERE approval_id IS NOT NULL",
    "ALTER TABLE grants ADD COLUMN hidden TEXT",
)

MIGRATIONS = (
    Migration(1, "first", (*_EXECUTIONS, *_APPROVALS, *_GRANTS, *_CALLS, *_SESSIONS, *_EVENTS)),
    Migration(2, "operators", _OPERATORS),
)


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS
) -> Path | None:
    """Bring the database at `path` to the last migration; where its copy lies, if one was made.

    Needs the only connection, in autocommit. Raises `PackhostError` with `STORE_NEWER` when a later
    packhost wrote it, `StoreUnavailable` when its schema is not one that was released.
    """
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations("
        "version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at REAL NOT NULL)"
    )
    applied = dict(connection.execute("SELECT version, sha256 FROM schema_migrations ORDER BY version"))
    known = {migration.version: migration for migration in migrations}
    newest, present = max(known), max(applied, default=0)
    if present > newest:
        raise PackhostError(
            f"the store has schema {present}, this packhost knows up to {newest}",
            code="STORE_NEWER",
            hint="use the packhost that wrote it, or a later one",
            found=present,
            known=newest,
        )
    for version, sha256 in applied.items():
        if version not in known or known[version].sha256 != sha256:
            raise StoreUnavailable(
                f"schema {version} of the store is not the one that this packhost knows",
                hint=f"use the packhost that wrote it, or move `{path}` aside to start afresh",
            )
    due = [migration for migration in migrations if migration.version > present]
    if not due:
        return None
    backup = _copy(connection, path, present) if present else None
    _apply(connection, due)
    return backup


def _copy(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    target = path.with_name(f"{path.name}.schema-{version}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        connection.execute("VACUUM INTO ?", (str(target),))
        os.fsync(fd)
    finally:
        os.close(fd)
    return target


def _apply(connection: sqlite3.Connection, due: Sequence[Migration]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in due:
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_migrations(version, name, sha256, applied_at) VALUES(?,?,?,?)",
                (migration.version, migration.name, migration.sha256, time.time()),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
