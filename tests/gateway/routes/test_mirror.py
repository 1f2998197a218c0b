"""`sessions.json`: for people, behind the store, whole or not at all."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from gateway.config import GatewayConfig, Platform
from gateway.routes import mirror
from gateway.session import SessionSource, SessionStore
from hermes_config.limits import Limits
from hermes_state import SessionDB


def source(chat: str) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, chat, user_id=chat)


def shown(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "sessions.json").read_text(encoding="utf-8"))
    return found


def test_it_shows_the_routes_after_a_change(make_db, tmp_path: Path) -> None:
    db: SessionDB = make_db(limits=Limits(mirror_routes=3))
    store = SessionStore(tmp_path / "sessions", GatewayConfig(), db=db)
    for chat in "abcde":
        store.resolve(source(chat))
        db.clock.advance(1)  # type: ignore[attr-defined]
    store.close()
    found = shown(tmp_path / "sessions")
    assert next(iter(found)) == "_README"
    assert "2 more routes are not shown" in str(found.pop("_README"))
    assert list(found) == [f"agent:main:telegram:dm:{chat}" for chat in "edc"]
    assert (tmp_path / "sessions" / "sessions.json").stat().st_mode & 0o077 == 0
    assert [file.name for file in (tmp_path / "sessions").iterdir()] == ["sessions.json"]


def test_it_can_be_switched_off(db: SessionDB, tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions", GatewayConfig(write_sessions_json=False), db=db)
    store.resolve(source("a"))
    store.close()
    assert not (tmp_path / "sessions").exists()


def test_many_changes_are_one_write_and_nobody_waits_for_it() -> None:
    started, go, writes = threading.Event(), threading.Event(), []

    def slow() -> None:
        writes.append(1)
        started.set()
        assert go.wait(10)

    behind = mirror.Mirror(slow, soon=0.0)
    began = time.monotonic()
    behind.touch()
    assert started.wait(10)
    for _ in range(1000):
        behind.touch()
    assert time.monotonic() - began < 5
    go.set()
    behind.close()
    assert len(writes) == 2
    behind.touch()
    assert len(writes) == 2


def test_a_write_that_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[bool] = []
    done = threading.Event()

    def write() -> None:
        outcomes.append(True)
        if len(outcomes) == 1:
            raise OSError("disk full")
        done.set()

    behind = mirror.Mirror(write, soon=0.0)
    behind.touch()
    deadline = time.monotonic() + 10
    while not outcomes and time.monotonic() < deadline:
        time.sleep(0.005)
    behind.touch()
    assert done.wait(10)
    behind.close()
    assert "disk full" in caplog.text


def test_a_failing_write_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    mirror.write(folder, [("k", {"session_id": "s"})])

    def broken():
        yield "k2", {"session_id": "s2"}
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        mirror.write(folder, broken())
    assert mirror.read(folder) == {"k": {"session_id": "s"}}
    assert [file.name for file in folder.iterdir()] == ["sessions.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "index.json").write_text("{}")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "sessions.json").symlink_to(tmp_path / "real" / "index.json")
    mirror.write(tmp_path / "sessions", [("k", {"a": 1})])
    assert (tmp_path / "sessions" / "sessions.json").is_symlink()
    assert json.loads((tmp_path / "real" / "index.json").read_text())["k"] == {"a": 1}


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_file_that_cannot_be_read_is_no_routes(tmp_path: Path, content: str) -> None:
    (tmp_path / "sessions.json").write_text(content)
    assert mirror.read(tmp_path) == {}
    assert mirror.read(tmp_path / "nowhere") == {}
