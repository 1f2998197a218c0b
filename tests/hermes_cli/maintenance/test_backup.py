"""`hermes backup`, as a person types it."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.sample_store import tell_story
from tests.support.stores import TestStores

from hermes_cli.main import main
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.slow


@pytest.fixture
def server(stores: TestStores, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The home's store is on PostgreSQL."""
    url = stores.postgresql()
    monkeypatch.setenv("HERMES_DATABASE_URL", url)
    yield url
    stores.discard(url)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert said.err.count("\n") <= 1
    return code, said.out, said.err


def messages(home: Path) -> int:
    db = SessionDB(home / "state.db")
    try:
        return db.message_count()
    finally:
        db.close()


def add(home: Path) -> None:
    db = SessionDB(home / "state.db")
    db.append_message("trip-2", "user", "afterwards")
    db.close()


def test_create_list_verify_restore(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "backup", "create")
    assert code == 0
    assert "4 sessions" in out
    assert "does not hold config.yaml and .env" in out
    made, checksum = sorted((story / "backups").iterdir())
    assert checksum.name == f"{made.name}.sha256"
    subprocess.run(["sha256sum", "--check", "--quiet", checksum.name], cwd=made.parent, check=True)
    listed = run(capsys, "backup", "list")[1]
    assert made.name in listed and "sha256" not in listed
    assert "is complete" in run(capsys, "backup", "verify", made.name)[1]
    before = messages(story)
    add(story)
    code, out, _ = run(capsys, "backup", "restore", made.name, "--yes")
    assert code == 0
    assert "The replaced store" in out
    assert messages(story) == before


def test_a_restore_asks_first(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "backup", "create", str(story / "b.db"))
    add(story)
    before = messages(story)
    code, _, err = run(capsys, "backup", "restore", str(story / "b.db"))
    assert code == 2
    assert "--yes" in err
    assert messages(story) == before


def test_secrets_only_when_asked_for(story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (story / ".env").write_text("TOKEN=hush\n")
    (story / "config.yaml").write_text("sessions: {}\n")
    run(capsys, "backup", "create", str(tmp_path / "a.db"))
    assert [path.name for path in tmp_path.glob("a.db.*")] == ["a.db.sha256"]
    _, out, _ = run(capsys, "backup", "create", str(tmp_path / "b.db"), "--with-secrets")
    assert "hush" not in out
    assert (tmp_path / "b.db.env").read_text() == "TOKEN=hush\n"
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("b.db*")} == {0o600}
    assert (tmp_path / "b.db.config.yaml").exists()


def files_of(home: Path) -> dict[str, str]:
    names = ("SOUL.md", "memories/ada/MEMORY.md", "skills/tea/SKILL.md", "hooks/greet/handler.py", "plugins/mine/x.py")
    for name in (*names, "media/cat.jpg", "sessions/saved/one.json", "logs/agent.log", "sessions/sessions.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"the first {name}")
    (home / "hooks/greet/handler.py").chmod(0o700)
    (home / "skills/link").symlink_to("/etc")
    return {name: f"the first {name}" for name in (*names, "sessions/saved/one.json")}


def test_the_files_of_the_home_are_in_a_backup_and_come_back(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = files_of(story)
    made = json.loads(run(capsys, "backup", "create", "--json")[1])
    with zipfile.ZipFile(made["files"]) as archive:
        assert set(archive.namelist()) == set(expected)
    assert stat.S_IMODE(Path(made["files"]).stat().st_mode) == 0o600
    code, out, _ = run(capsys, "backup", "verify", made["path"])
    assert code == 0 and "6 files of the home (SOUL.md, hooks, memories, plugins, sessions/saved, skills)" in out
    for name in expected:
        (story / name).write_text("changed since")
    (story / "memories/new.md").write_text("written since")
    (story / "notes").mkdir()
    restored = run(capsys, "backup", "restore", made["path"], "--yes", "--store-only")
    assert restored[0] == 0 and (story / "SOUL.md").read_text() == "changed since"
    code, out, _ = run(capsys, "backup", "restore", made["path"], "--yes")
    assert code == 0
    assert {name: (story / name).read_text() for name in expected} == expected
    assert stat.S_IMODE((story / "hooks/greet/handler.py").stat().st_mode) == 0o700
    assert not (story / "memories/new.md").exists() and (story / "notes").exists()
    replaced = Path(out.split("The replaced files: ")[1].strip())
    with zipfile.ZipFile(replaced) as archive:
        assert archive.read("memories/new.md") == b"written since"
    assert not list(story.glob(".restore-*"))
    assert [one["path"] for one in json.loads(run(capsys, "backup", "list", "--json")[1])].count(made["files"]) == 0


def test_logins_of_mcp_servers_are_in_no_backup_and_stay_at_a_restore(
    story: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login, file = story / "mcp/tokens/notes.json", story / "mcp/files/notes/a.txt"
    for path in (login, file):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    made = json.loads(run(capsys, "backup", "create", "--json")[1])
    with zipfile.ZipFile(made["files"]) as archive:
        assert archive.namelist() == ["mcp/files/notes/a.txt"]
    file.unlink()
    assert run(capsys, "backup", "restore", made["path"], "--yes")[0] == 0
    assert login.exists() and file.read_text() == "x"


def test_only_copies_of_the_store_are_listed_as_backups(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (story / "config.yaml.bak").write_text("model: demo\n")
    (story / "state.db.before-112.bak").write_bytes((story / "state.db").read_bytes())
    listed = json.loads(run(capsys, "backup", "list", "--json")[1])
    assert [Path(one["path"]).name for one in listed] == ["state.db.before-112.bak"]


def test_media_and_the_workspace_come_along_by_choice(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files_of(story)
    (story / "workspace").mkdir()
    (story / "workspace/plan.txt").write_text("x")
    run(capsys, "backup", "create", str(tmp_path / "a.db"), "--with-media", "--with-workspace")
    with zipfile.ZipFile(tmp_path / "a.db.home.zip") as archive:
        assert {"media/cat.jpg", "workspace/plan.txt", "SOUL.md"} <= set(archive.namelist())


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/x", "config.yaml", ".env", "state.db", "logs/x", "skills/../../x"]
)
def test_files_that_no_backup_of_ours_holds_are_refused_before_anything_changes(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run(capsys, "backup", "create", str(tmp_path / "a.db"))
    with zipfile.ZipFile(tmp_path / "a.db.home.zip", "w") as archive:
        archive.writestr(name, "bad")
    add(story)
    before = messages(story), sorted(path.name for path in tmp_path.iterdir())
    for verb in (["verify"], ["restore", "--yes"]):
        code, _, err = run(capsys, "backup", verb[0], str(tmp_path / "a.db"), *verb[1:])
        assert code == 1 and "damaged or unexpected" in err
    assert (messages(story), sorted(path.name for path in tmp_path.iterdir())) == before


def test_files_of_a_backup_whose_last_bytes_are_gone_are_refused(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (story / "SOUL.md").write_text("I am kind.")
    run(capsys, "backup", "create", str(tmp_path / "a.db"))
    files = tmp_path / "a.db.home.zip"
    files.write_bytes(files.read_bytes()[:-14] + bytes(14))  # a zip that lists nothing
    for verb in (["verify"], ["restore", "--yes"]):
        code, _, err = run(capsys, "backup", verb[0], str(tmp_path / "a.db"), *verb[1:])
        assert code == 1 and "lists none" in err


def test_json_for_programs(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(run(capsys, "backup", "create", "--json")[1])
    assert made["rows"]["sessions"] == 4
    assert json.loads(run(capsys, "backup", "list", "--json")[1])[0]["path"] == made["path"]
    assert json.loads(run(capsys, "backup", "verify", made["path"], "--json")[1])["ok"] is True
    restored = json.loads(run(capsys, "backup", "restore", made["path"], "--json", "--yes")[1])
    assert Path(restored["replaced"]).exists()


def test_mistakes_are_one_line_and_change_nothing(
    story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.db").write_text("hello" * 500)
    (tmp_path / "text.zip").write_text("hello" * 500)
    before = messages(story)
    for wrong in (
        str(tmp_path / "text.db"),
        str(tmp_path / "text.zip"),
        "missing.db",
        "../../x",
        str(story / "state.db"),
    ):
        code, _, err = run(capsys, "backup", "restore", wrong, "--yes")
        assert code in (1, 2), wrong
        assert err.startswith("hermes: "), wrong
    code, _, err = run(capsys, "backup", "create", str(tmp_path / "text.db"))
    assert code == 2
    assert "already" in err
    code, _, err = run(capsys, "backup", "create", str(tmp_path))
    assert code == 2 and "this is a folder" in err
    assert messages(story) == before


def test_an_empty_home_is_not_made_by_looking(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "backup", "list")[0] == 0
    assert run(capsys, "backup", "create")[0] == 1
    assert not home.exists()


def test_a_store_on_postgresql_is_backed_up_as_an_archive_and_restored_into_an_empty_one(
    server: str, home: Path, stores: TestStores, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = SessionDB.connect(server)
    tell_story(db)
    db.close()
    made = json.loads(run(capsys, "backup", "create", "--json")[1])
    assert made["path"].endswith(".zip")
    code, _, err = run(capsys, "backup", "restore", made["path"], "--yes")
    assert code == 1
    assert "is not empty" in err
    other = stores.postgresql(empty=True)
    monkeypatch.setenv("HERMES_DATABASE_URL", other)
    code, out, _ = run(capsys, "backup", "restore", made["path"], "--yes")
    assert (code, "4 sessions" in out) == (0, True)
    db = SessionDB.connect(other)
    assert len(db.get_messages("trip-2")) == 2
    db.close()
    stores.discard(other)


def test_a_sqlite_backup_does_not_go_into_postgresql_by_accident(
    story: Path, stores: TestStores, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(run(capsys, "backup", "create", "--json")[1])
    monkeypatch.setenv("HERMES_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    code, _, err = run(capsys, "backup", "restore", made["path"], "--yes")
    assert code == 2
    assert "hermes state move" in err


@pytest.mark.parametrize("verb", ["create", "verify", "restore", "list"])
def test_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "backup", verb, "--help")
    assert code == 0
    assert f"hermes backup {verb}" in out.split("examples:")[1]


ACTING = {
    "trigger evil": "CREATE TRIGGER evil AFTER INSERT ON messages BEGIN UPDATE people SET role = 'owner'; END",
    "trigger sessions_minute_insert": (
        "DROP TRIGGER sessions_minute_insert; CREATE TRIGGER sessions_minute_insert AFTER INSERT ON sessions"
        " BEGIN UPDATE people SET role = 'owner'; END"
    ),
    "view people": "ALTER TABLE people RENAME TO people2; CREATE VIEW people AS SELECT * FROM people2",
    "table held": "CREATE TABLE held (id TEXT REFERENCES messages(id))",
    "table words": "CREATE VIRTUAL TABLE words USING fts5(body)",
    "table people": "ALTER TABLE people ADD COLUMN more TEXT DEFAULT 'x'",
    "unique index one": "CREATE UNIQUE INDEX one ON messages(role)",
}


@pytest.mark.parametrize("what", ACTING)
def test_a_database_with_a_trigger_or_a_table_that_is_not_ours_is_named_and_not_restored(
    story: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    run(capsys, "backup", "create", str(story / "b.db"))
    with closing(sqlite3.connect(story / "b.db")) as changed:
        if what == "unique index one":
            changed.execute("DELETE FROM messages")
        changed.executescript(ACTING[what])
        changed.commit()
    before = messages(story)
    for command in (("verify", str(story / "b.db")), ("restore", str(story / "b.db"), "--yes")):
        code, _, err = run(capsys, "backup", *command)
        assert code != 0
        assert what in err, err
    assert messages(story) == before


def test_a_backup_that_no_restore_would_take_says_so_when_it_is_made(
    story: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(story / "state.db")) as changed:
        changed.executescript(ACTING["table people"])
    code, out, err = run(capsys, "backup", "create", str(story / "b.db"))
    assert code == 1 and "b.db" in out and "a restore would refuse it: table people" in err
    assert run(capsys, "backup", "verify", str(story / "b.db"))[0] == 1
    assert run(capsys, "backup", "create", str(story / "b.zip"))[0] == 0
    assert run(capsys, "backup", "verify", str(story / "b.zip"))[0] == 0


def test_tables_that_an_import_kept_are_named_and_restored(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "backup", "create", str(story / "b.db"))
    with closing(sqlite3.connect(story / "b.db")) as changed:
        changed.execute("CREATE TABLE delivery_obligations (obligation_id TEXT, content TEXT)")
        changed.commit()
    code, _, err = run(capsys, "backup", "verify", str(story / "b.db"))
    assert code == 1 and "If you changed it on purpose, remove b.db.sha256." in err
    (story / "b.db.sha256").unlink()
    assert (
        "Tables that Hermes does not know or use: table delivery_obligations."
        in run(capsys, "backup", "verify", str(story / "b.db"))[1]
    )
    assert run(capsys, "backup", "restore", str(story / "b.db"), "--yes")[0] == 0
    code, out, _ = run(capsys, "state", "check")
    assert code == 0 and "delivery_obligations" in out


def test_a_backup_from_before_the_first_release_is_refused(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = messages(story)
    with closing(sqlite3.connect(story / "old.db")) as made:
        made.execute("CREATE TABLE schema_version (version INTEGER)")
        made.execute("INSERT INTO schema_version (version) VALUES (100)")
        made.commit()
    code, _, err = run(capsys, "backup", "restore", str(story / "old.db"), "--yes")
    assert code != 0 and err.startswith("hermes: ") and err.count("\n") == 1
    assert messages(story) == before, "the store is as it was"


def test_state_check_names_a_foreign_trigger(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(story / "state.db")) as changed:
        changed.executescript(ACTING["trigger evil"])
        changed.commit()
    code, out, _ = run(capsys, "state", "check")
    assert code == 1
    assert "trigger evil" in out
