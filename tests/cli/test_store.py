"""`packhost store` on SQLite: what it says, backups and restorations, migrations, pruning."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.store.migrations import migrate
from packhost.store.schema import MIGRATIONS

KEY = "0123456789abcdef0123456789abcdef"
DAY = 86_400.0


def state_of(project: Path) -> Path:
    (state,) = (project.parent / "state" / "packhost").iterdir()
    return state


def test_a_store_that_is_not_there_yet_is_said_to_be_none(empty: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("store", "info")
    assert (ran.status, "there is no store here yet" in ran.err) == (2, True)


def test_info_says_what_the_store_is_and_holds(aged: Path, packhost: Callable[..., Any]) -> None:
    found = packhost("store", "info", "--json").json
    assert (found["kind"], found["schema"], found["holder"]) == ("sqlite", found["known_schema"], None)
    assert found["place"] == str(state_of(aged) / "store.db")
    assert (found["rows"]["calls"], found["record"]["first"]) == (3, 1)
    assert found["record"]["head"] == packhost("audit", "head", "--json").json["hash"]
    assert found["bytes"] > 0
    shown = packhost("store", "info").out
    assert all(word in shown for word in ("SQLite", "write-ahead log", "free on the disk", "no host"))


def test_looking_at_a_store_does_not_migrate_it(aged: Path, packhost: Callable[..., Any]) -> None:
    older(state_of(aged) / "store.db")
    found = packhost("store", "info", "--json").json
    assert found["schema"] == MIGRATIONS[-2].version < found["known_schema"]
    assert "behind" in packhost("store", "info").out
    due = packhost("store", "migrate", "--dry-run", "--json").json
    assert (len(due["due"]), due["applied"]) == (1, [])
    assert packhost("store", "info", "--json").json["schema"] == found["schema"]


def older(path: Path) -> None:
    """Put a store of the packhost before this one there, with nothing in it."""
    path.unlink()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    migrate(connection, path, MIGRATIONS[:-1])
    connection.close()


def test_a_migration_copies_the_store_first(aged: Path, packhost: Callable[..., Any]) -> None:
    older(state_of(aged) / "store.db")
    done = packhost("store", "migrate", "--json").json
    assert done["applied"] == done["due"] != []
    assert Path(done["copy"]).stat().st_mode & 0o777 == 0o600
    assert "nothing is due" in packhost("store", "migrate").out
    assert packhost("audit", "verify").status == 0


def test_a_store_of_a_later_packhost_is_refused(aged: Path, packhost: Callable[..., Any]) -> None:
    connection = sqlite3.connect(state_of(aged) / "store.db", isolation_level=None)
    connection.execute("INSERT INTO schema_migrations VALUES(99, 'later', 'x', 0)")
    connection.close()
    ran = packhost("store", "migrate", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "STORE_NEWER")


def test_a_backup_holds_the_store_and_what_it_is_bound_to(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "b.packhost"
    made = packhost("store", "backup", str(file), "--json").json
    assert set(made["parts"]) == {"store/store.db", "state/accepted.json", "state/host.key"}
    assert made["head"]["hash"] == packhost("audit", "head", "--json").json["hash"]
    assert (file.stat().st_mode & 0o777, made["fault"]) == (0o600, None)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".b")] == []
    ran = packhost("store", "backup", str(file))
    assert (ran.status, "exists already" in ran.err) == (2, True)
    assert "keep it secret" in packhost("store", "backup", str(tmp_path / "c")).out


def test_a_backup_of_a_record_that_was_tampered_with_says_so(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    connection = sqlite3.connect(state_of(aged) / "store.db", isolation_level=None)
    connection.execute("UPDATE events SET actor='x' WHERE id=2")
    connection.close()
    ran = packhost("store", "backup", str(tmp_path / "b"))
    assert (ran.status, "event 2" in ran.out) == (1, True)
    ran = packhost("store", "restore", str(tmp_path / "b"), "--yes")
    assert (ran.status, "does not verify" in ran.err) == (2, True)


def test_a_restoration_brings_the_store_back_and_keeps_the_present_one(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "b"
    head = packhost("store", "backup", str(file), "--json").json["head"]
    packhost("call", "workspace:read_file", '{"path": "README.md"}')
    later = packhost("audit", "head", "--json").json
    done = packhost("store", "restore", str(file), "--yes", "--json").json
    assert (done["interrupted"], done["withdrawn"]["approvals"]) == ([], 0)
    aside = Path(done["aside"])
    assert {"store.db", "host.key"} <= {path.name for path in aside.iterdir()}
    assert packhost("audit", "verify", "--head", head["hash"]).status == 0
    assert packhost("audit", "verify", "--head", later["hash"]).status == 1
    last = json.loads(packhost("audit", "export").out.splitlines()[-1])
    assert (last["type"], last["data"]["replaced"]["id"]) == ("store.restored", later["id"])
    assert not [path for path in state_of(aged).iterdir() if path.name.startswith(".restore")]


def test_what_was_open_or_taken_back_does_not_hold_again(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    write = ("call", "workspace:write_file", '{"path": "src/a.txt", "content": "x"}', "--json")
    asked = packhost(*write)
    approval = asked.json["refusal"]["approval_id"]
    file = tmp_path / "b"
    packhost("store", "backup", str(file))
    done = packhost("store", "restore", str(file), "--yes", "--json").json
    assert done["withdrawn"] == {"approvals": 1, "questions": 0, "grants": 0, "tokens": 0}
    shown = packhost("approvals", "show", approval, "--json").json
    assert shown["status"] == "cancelled"


def test_what_is_accepted_now_stays_accepted_unless_the_older_is_wanted(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    accepted = state_of(aged) / "accepted.json"
    then = accepted.read_text()
    packhost("store", "backup", str(tmp_path / "b"))
    text = (aged / "packhost.yaml").read_text()
    (aged / "packhost.yaml").write_text(text.replace("write src/**", "write docs/**"))
    assert packhost("accept", "--yes").status == 0
    now = accepted.read_text()
    packhost("store", "restore", str(tmp_path / "b"), "--yes")
    assert now != then
    assert accepted.read_text() == now
    packhost("store", "restore", str(tmp_path / "b"), "--yes", "--with-consent")
    assert accepted.read_text() == then


def test_a_workspace_whose_state_is_gone_is_back_with_its_key_and_its_consent(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    head = packhost("store", "backup", str(tmp_path / "b"), "--json").json["head"]
    state = state_of(aged)
    before = {name: (state / name).read_bytes() for name in ("host.key", "accepted.json")}
    shutil.rmtree(state)
    assert packhost("store", "restore", str(tmp_path / "b"), "--yes").status == 0
    assert {name: (state / name).read_bytes() for name in before} == before
    assert packhost("audit", "verify", "--head", head["hash"]).status == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (state, *state.iterdir()))


def test_a_damaged_store_is_replaced_all_the_same(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    packhost("store", "backup", str(tmp_path / "b"))
    (state_of(aged) / "store.db").write_bytes(b"no database at all" * 400)
    done = packhost("store", "restore", str(tmp_path / "b"), "--yes", "--json").json
    assert done["present_unread"] is True
    assert packhost("audit", "verify").status == 0


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    at = data.index(b"SQLite format 3") + 5_000
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [(cut, "cut short"), (flipped, "is not what it was"), (lambda data: b"x" * 999, "is no backup")],
)
def test_a_backup_that_was_damaged_replaces_nothing(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    file = tmp_path / "b"
    packhost("store", "backup", str(file))
    before = packhost("audit", "head", "--json").json
    file.write_bytes(change(file.read_bytes()))
    ran = packhost("store", "restore", str(file), "--yes")
    assert (ran.status, said in ran.err) == (2, True)
    assert packhost("audit", "head", "--json").json == before
    assert not [path for path in state_of(aged).iterdir() if path.name.startswith((".restore", "replaced"))]


def test_a_name_that_leads_out_of_the_state_folder_is_refused(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    file, evil = tmp_path / "b", tmp_path / "evil"
    packhost("store", "backup", str(file))
    with tarfile.open(file) as source, tarfile.open(evil, "w") as target:
        for entry in source:
            opened = source.extractfile(entry)
            data = opened.read() if opened else b""
            if entry.name == "manifest.json":
                data = data.replace(b"state/host.key", b"state/../../x.y")
                entry.size = len(data)
            if entry.name == "state/host.key":
                entry.name = "state/../../x.y"
            (tmp_path / "piece").write_bytes(data)
            with (tmp_path / "piece").open("rb") as piece:
                target.addfile(entry, piece)
    ran = packhost("store", "restore", str(evil), "--yes")
    assert (ran.status, "does not name" in ran.err) == (2, True)


def test_a_backup_of_another_workspace_is_refused(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    packhost("store", "backup", str(tmp_path / "b"))
    other = tmp_path / "other"
    other.mkdir()
    ran = packhost("store", "restore", str(tmp_path / "b"), "--yes", "-w", str(other))
    assert (ran.status, "another workspace" in ran.err) == (2, True)


def test_a_person_is_asked_before_anything_is_replaced_or_removed(
    aged: Path, packhost: Callable[..., Any], person: Callable[..., Any], tmp_path: Path
) -> None:
    packhost("store", "backup", str(tmp_path / "b"))
    person(("Restore it? [y/N]", "n\n"))
    ran = packhost("store", "restore", str(tmp_path / "b"))
    assert (ran.status, "nothing was replaced" in ran.out) == (3, True)
    someone = person(("Remove it? [y/N]", "n\n"))
    ran = packhost("store", "prune", "--older-than", "1d", "--without-export")
    assert (ran.status, "nothing was removed" in ran.out) == (3, True)
    assert "events, 1 to" in someone.seen


@pytest.mark.parametrize(
    "words", [("restore", "b", "--yes"), ("prune", "--older-than", "1d", "--without-export", "--yes")]
)
def test_an_agents_shell_restores_and_prunes_nothing(
    aged: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("store", *words).status == 3


def test_a_pruning_is_planned_exported_and_proved_with_the_rest(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_KEY", KEY)
    key = ("--hmac-key", "env:AUDIT_KEY")
    anchors = str(tmp_path / "anchors")
    lines = [json.loads(line) for line in packhost("audit", "export").out.splitlines()]
    old = [line for line in lines if line["ts"] < time.time() - DAY]
    (tmp_path / "anchors").write_text(json.dumps({name: old[1][name] for name in ("id", "hash")}) + "\n")
    plan = packhost("store", "prune", "--older-than", "1d", "--dry-run", "--json").json["plan"]
    assert (plan["events"]["count"], plan["rows"]["runs"], plan["rows"]["calls"]) == (len(old), 2, 2)
    file = tmp_path / "old.jsonl"
    ran = packhost(
        "store", "prune", "--older-than", "1d", "--export", str(file), *key, "--yes", "--reason", "old"
    )
    assert (ran.status, f"gone: {len(old)} events" in ran.out) == (0, True)
    assert file.stat().st_mode & 0o777 == 0o600
    ran = packhost("audit", "verify")
    assert (ran.status, f"events 1 to {len(old)} were pruned" in ran.out) == (0, True)
    joined = ("audit", "verify", "--export", str(file), *key)
    assert packhost(*joined).status == 0
    ran = packhost(*joined, "--join")
    assert (ran.status, "goes on where the export ends" in ran.out) == (0, True)
    # an anchor of the part that went: with its export it is held to, without it cannot be
    ran = packhost("audit", "verify", "--anchor", anchors)
    assert (ran.status, "join the export" in ran.out) == (1, True)
    assert packhost("audit", "verify", "--anchor", anchors, "--export", str(file), "--join").status == 0
    (tmp_path / "anchors").write_text(json.dumps({"id": 2, "hash": "f" * 64}) + "\n")
    assert packhost("audit", "verify", "--anchor", anchors, "--export", str(file), "--join").status == 1
    text = file.read_text().splitlines()
    file.write_text("\n".join(text[:-2]) + "\n")
    ran = packhost("audit", "verify", "--export", str(file), "--join")
    assert (ran.status, "the record begins after" in ran.out) == (1, True)


def test_nothing_is_pruned_without_a_copy_unless_that_is_said(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    ran = packhost("store", "prune", "--older-than", "1d", "--yes")
    assert (ran.status, "--without-export" in ran.err) == (2, True)
    both = ("--without-export", "--export", str(tmp_path / "x"))
    assert packhost("store", "prune", "--older-than", "1d", *both, "--yes").status == 2
    assert packhost("store", "prune", "--older-than", "59m", "--without-export").status == 2
    done = packhost("store", "prune", "--older-than", "1d", "--without-export", "--yes", "--json").json
    assert (done["pruned"]["events"] > 0, done["pruned"]["export_sha256"]) == (True, None)
    ran = packhost("store", "prune", "--older-than", "1d", "--without-export", "--yes")
    assert (ran.status, "nothing is older than 1 day" in ran.out) == (0, True)


def test_ended_runs_may_go_at_another_age_than_events(aged: Path, packhost: Callable[..., Any]) -> None:
    words = ("--older-than", "30d", "--runs-older-than", "1d", "--dry-run", "--json")
    plan = packhost("store", "prune", *words).json["plan"]
    assert (plan["events"]["count"], plan["rows"]["runs"]) == (0, 2)


def test_a_restoration_that_was_decided_is_carried_to_its_end_by_the_next_command(
    aged: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    packhost("store", "backup", str(tmp_path / "b"))
    state = state_of(aged)
    before = packhost("audit", "head", "--json").json
    ready = state / ".restore-half" / "new"
    ready.mkdir(parents=True)
    os.rename(state / "host.key", ready / "host.key")
    said: dict[str, Any] = {
        "from": ".restore-half",
        "aside": "replaced-half",
        "old": ["host.key"],
        "new": ["host.key"],
    }
    (state / "restore.json").write_text(json.dumps(said))
    assert packhost("audit", "head", "--json").json == before
    assert (state / "host.key").exists()
    assert not (state / "restore.json").exists()
    assert not (state / ".restore-half").exists()
