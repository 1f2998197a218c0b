"""Backups: made while others write, verified, and put back in one step or not at all."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.support.kill_points import points_in_child
from tests.support.processes import Worker
from tests.support.sample_store import fill_every_table, tell_story

from hermes_config.errors import UsageError
from hermes_config.limits import Limits
from hermes_state.errors import (
    ArchiveRefused,
    BackupRefused,
    ForeignHome,
    NotADatabase,
    StateError,
    StoreDamaged,
    StoreUnavailable,
)
from hermes_state.session_db import SessionDB
from hermes_state.transfer import archive_write, backup, copy_all

pytestmark = pytest.mark.slow

LIMITS = Limits()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A store on SQLite with a story in it, closed."""
    folder = tmp_path / "home-of-backups"
    folder.mkdir()
    db = SessionDB(folder / "state.db")
    tell_story(db)
    db.close()
    return folder / "state.db"


def texts(database: Path) -> list[str]:
    db = SessionDB(database)
    try:
        return [str(message["content"]) for message in db.get_messages("trip-2")]
    finally:
        db.close()


def say(database: Path, words: str) -> None:
    db = SessionDB(database)
    db.append_message("trip-2", "user", words)
    db.close()


def make(database: Path, path: Path) -> backup.Backup:
    db = SessionDB(database)
    try:
        return backup.create(db, path)
    finally:
        db.close()


# -- making and checking ---------------------------------------------------------------------------------------------


def test_a_backup_has_all_rows_is_private_and_one_file(tmp_path: Path) -> None:
    db = SessionDB(tmp_path / "state.db")
    fill_every_table(db)
    made = backup.create(db, tmp_path / "b.db")
    db.close()
    assert made.rows is not None
    assert set(made.rows.values()) == {3}
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "b.db"))) == [
        "b.db", "b.db.sha256",
    ]  # fmt: skip
    assert backup.verify(made.path, limits=LIMITS) == made


def test_a_backup_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    db = SessionDB(tmp_path / "state.db")
    db.create_session("s", "cli")
    db.append_messages("s", ({"role": "user", "content": "x" * 2_000} for _ in range(2_000)))
    wrote, stop = [], threading.Event()

    def write() -> None:
        other = SessionDB(tmp_path / "state.db")
        while not stop.is_set():
            wrote.append(other.append_message("s", "user", "meanwhile"))
        other.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        made = [backup.create(db, tmp_path / f"{n}.db") for n in range(3)]
    finally:
        stop.set()
        thread.join()
    assert wrote
    counts = [(copy.rows or {})["messages"] for copy in made]
    assert counts == sorted(counts)
    assert db.message_count() == 2_000 + len(wrote), "making backups must not lose a write"
    for copy in made:
        db_copy = SessionDB(copy.path)
        session = db_copy.get_session("s")
        assert session is not None
        assert session["message_count"] == (copy.rows or {})["messages"], "counter and rows are of one moment"
        db_copy.close()
    db.close()


_HOLDER = """
import sys
from pathlib import Path
from hermes_state.session_db import SessionDB
from tests.support.processes import say, wait_for_go
db = SessionDB(Path(sys.argv[1]))
db.append_message("trip-2", "user", "from the other process")
say("open")
wait_for_go()
db.append_message("trip-2", "user", "still there")
say("wrote")
wait_for_go()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Path:
    """A script that opens a store, writes, and keeps it open."""
    script = tmp_path / "holder.py"
    script.write_text(_HOLDER)
    return script


def test_a_backup_from_another_process_costs_nobody_a_write(database: Path, holder: Path, tmp_path: Path) -> None:
    with Worker(holder, database) as worker:
        assert worker.line() == "open"
        made = make(database, tmp_path / "b.db")
        worker.go()
        assert worker.line() == "wrote"
        worker.kill()
    assert texts(database)[-2:] == ["from the other process", "still there"]
    assert texts(made.path)[-1] == "from the other process"


def test_a_backup_never_takes_the_place_of_a_file(database: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.db").write_text("mine")
    with pytest.raises(UsageError, match="already"):
        make(database, tmp_path / "precious.db")
    assert (tmp_path / "precious.db").read_text() == "mine"
    with pytest.raises(UsageError, match="folder does not exist"):
        make(database, tmp_path / "nowhere" / "b.db")


def test_a_damaged_backup_is_found_out(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    whole = made.read_bytes()
    made.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    with pytest.raises(StateError):
        backup.verify(made, limits=LIMITS)
    made.write_bytes(b"hello, I am a text file, and not a short one either" * 50)
    with pytest.raises(NotADatabase, match="hermes backup list"):
        backup.verify(made, limits=LIMITS)
    made.write_bytes(b"")
    with pytest.raises(BackupRefused, match="empty"):
        backup.verify(made, limits=LIMITS)
    with pytest.raises(BackupRefused, match="backup does not exist"):
        backup.verify(tmp_path / "missing.db", limits=LIMITS)


def test_a_letter_that_changed_on_the_disk_is_found_out(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    with closing(SessionDB(database)) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "the door code is 4711")
    made = make(database, tmp_path / "b.db").path
    made.write_bytes(made.read_bytes().replace(b"4711", b"4611"))
    with pytest.raises(BackupRefused, match="its checksum does not fit"):
        backup.verify(made, limits=LIMITS)
    with pytest.raises(BackupRefused):
        backup.restore(made, database, home=tmp_path, limits=LIMITS)
    with closing(SessionDB(database)) as db:
        assert db.get_messages("s")[0]["content"] == "the door code is 4711"


def test_a_store_on_either_engine_can_be_backed_up_as_an_archive(db: SessionDB, tmp_path: Path) -> None:
    fill_every_table(db)
    made = backup.create(db, tmp_path / "b.zip")
    assert made.rows is not None
    assert set(made.rows.values()) == {3}
    if db.engine.dialect == "postgresql":
        with pytest.raises(UsageError, match="zip"):
            backup.create(db, tmp_path / "b.db")


# -- putting back ----------------------------------------------------------------------------------------------------


def test_a_restore_brings_the_old_content_back_and_keeps_the_new(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    before = texts(database)
    say(database, "afterwards")
    aside = backup.restore(made, database, home=database.parent, limits=LIMITS)
    assert texts(database) == before
    assert aside is not None
    assert aside.parent == database.parent / "backups"
    assert texts(aside)[-1] == "afterwards"
    say(database, "the store goes on")
    assert texts(database)[-1] == "the store goes on"


def test_a_restore_into_an_empty_home_needs_no_old_store(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    fresh = tmp_path / "fresh" / "state.db"
    assert backup.restore(made, fresh, home=fresh.parent, limits=LIMITS) is None
    assert texts(fresh) == texts(database)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o600


def test_a_restore_is_refused_while_another_process_has_the_store_open(
    database: Path, holder: Path, tmp_path: Path
) -> None:
    made = make(database, tmp_path / "b.db").path
    with Worker(holder, database) as worker:
        assert worker.line() == "open"
        with pytest.raises(StoreUnavailable, match="another process"):
            backup.restore(made, database, home=database.parent, limits=LIMITS)
        worker.go()
        assert worker.line() == "wrote"
    assert texts(database)[-1] == "still there"


def test_a_damaged_store_can_be_replaced_and_is_kept(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    before = texts(database)
    rubbish = b"\xff" * database.stat().st_size
    database.write_bytes(rubbish)
    aside = backup.restore(made, database, home=database.parent, limits=LIMITS)
    assert texts(database) == before
    assert aside is not None
    assert aside.read_bytes() == rubbish


def test_a_bad_backup_leaves_the_store_alone(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    whole = made.read_bytes()
    made.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    before = texts(database)
    with pytest.raises(StateError) as caught:
        backup.restore(made, database, home=database.parent, limits=LIMITS)
    assert isinstance(caught.value, StoreDamaged)
    assert texts(database) == before
    with pytest.raises(UsageError, match="itself"):
        backup.restore(database, database, home=database.parent, limits=LIMITS)


def test_a_store_of_the_reference_is_never_replaced(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    theirs = tmp_path / "theirs.db"
    raw = apsw.Connection(str(theirs))
    raw.execute("CREATE TABLE schema_version (version INTEGER)")
    raw.execute("INSERT INTO schema_version VALUES (22)")
    raw.close()
    before = theirs.read_bytes()
    with pytest.raises(ForeignHome):
        backup.restore(made, theirs, home=theirs.parent, limits=LIMITS)
    assert theirs.read_bytes() == before


def test_a_killed_restore_leaves_the_store_before_or_after(
    database: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = make(database, tmp_path / "b.db").path
    before = texts(database)
    say(database, "afterwards")
    shutil.copytree(database.parent, tmp_path / "original")

    def restores(database: Path) -> Callable[[], object]:
        return lambda: backup.restore(made, database, home=database.parent, limits=LIMITS)

    total = points_in_child(restores(database))
    assert total > 50
    step = 1 if request.config.getoption("--long") else total // 50
    outcomes = set()
    for fatal in (*range(1, total, step), total):
        folder = tmp_path / f"killed-{fatal}"
        shutil.copytree(tmp_path / "original", folder)
        assert points_in_child(restores(folder / "state.db"), fatal=fatal) == 0
        found = texts(folder / "state.db")
        assert found in (before, [*before, "afterwards"]), f"killed at point {fatal} of {total}"
        outcomes.add(found == before)
        shutil.rmtree(folder)
    assert outcomes == {True, False}, "some kills come before the change and some after it"
    assert texts(database) == before


def test_the_search_index_of_the_replaced_store_is_dropped(database: Path, tmp_path: Path) -> None:
    made = make(database, tmp_path / "b.db").path
    index = database.with_name("state.search.db")
    index.write_bytes(b"old words")
    backup.restore(made, database, home=database.parent, limits=LIMITS)
    assert not index.exists() or index.read_bytes() != b"old words"


# -- keeping house -----------------------------------------------------------------------------------------------------


def test_automatic_backups_are_thinned_out_and_those_of_people_stay(database: Path) -> None:
    folder = database.parent / "backups"
    folder.mkdir()
    mine = make(database, folder / "mine.db").path
    for _ in range(4):
        say(database, "more")
        backup.restore(mine, database, home=database.parent, limits=Limits(backups_kept=2))
    names = [found.path.name for found in backup.existing(database.parent)]
    assert len([name for name in names if name.startswith("auto-replaced-")]) == 2
    assert "mine.db" in names


def test_names_are_free_and_say_when(tmp_path: Path) -> None:
    first = backup.new_path(tmp_path, now=0)
    assert first.name == "hermes-19700101-000000.db"
    first.touch()
    assert backup.new_path(tmp_path, now=0).name == "hermes-19700101-000000-2.db"


def test_an_archive_backup_comes_back_into_an_empty_store(db: SessionDB, tmp_path: Path) -> None:
    tell_story(db)
    backup.create(db, tmp_path / "b.zip")
    target = SessionDB(tmp_path / "target.db")
    copy_all.restore_store(target, tmp_path / "b.zip")
    assert target.get_messages("trip-2") == db.get_messages("trip-2")
    target.close()


def test_an_export_of_conversations_is_no_backup(db: SessionDB, tmp_path: Path) -> None:
    tell_story(db)
    archive_write.export(db, tmp_path / "export.zip")
    with pytest.raises(ArchiveRefused, match="not a whole store") as refused:
        backup.verify(tmp_path / "export.zip", limits=Limits())
    assert "hermes sessions import" in refused.value.one_line()


def test_verify_refuses_an_archive_whose_rows_do_not_fit_each_other(database: Path, tmp_path: Path) -> None:
    """Each line is right by itself, and the checksums are; a restore would be refused by the database."""
    with closing(SessionDB(database)) as db:
        db.engine.with_writer(lambda raw: raw.pragma("foreign_keys", False))
        insert = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('nobody', 'user', 'x', 1)"
        db.engine.write(lambda conn: conn.run(insert))
        copy_all.export_store(db, tmp_path / "b.zip")
    with closing(SessionDB(tmp_path / "empty.db")) as empty, pytest.raises(StateError):
        copy_all.restore_store(empty, tmp_path / "b.zip")
    with pytest.raises(BackupRefused, match="contradict each other"):
        backup.verify(tmp_path / "b.zip", limits=LIMITS)
