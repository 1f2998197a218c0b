"""`hermes state`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.stores import TestStores

from hermes_cli.main import main
from hermes_state.session_db import SessionDB
from hermes_state.transfer import archive_write


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert said.err.count("\n") <= 1
    return code, said.out, said.err


def change(home: Path, sql: str, *params: object) -> None:
    db = SessionDB(home / "state.db")
    db._execute_write(lambda conn: conn.run(sql, params))
    db.close()


def test_check_says_in_order_and_0(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "state", "check")
    assert code == 0
    assert out.endswith("state.db: no problem.\n")
    assert run(capsys, "state", "check", "--quick")[0] == 0


def test_check_says_what_is_wrong_and_1_and_mends_on_request(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(story, "UPDATE routes SET session_id = 'trip'")
    code, out, _ = run(capsys, "state", "check")
    assert code == 1
    assert "route-behind" in out
    assert "--fix" in out
    facts = json.loads(run(capsys, "state", "check", "--json")[1])
    assert facts["ok"] is False
    assert [one["examples"] for one in facts["findings"] if not one["note"]] == [["trip"]]
    code, out, _ = run(capsys, "state", "check", "--fix")
    assert code == 0
    assert "fixed   route-behind: 1" in out
    assert run(capsys, "state", "check")[0] == 0


def test_maintain_says_first_asks_and_does(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(story, "UPDATE messages SET replaced = 1 WHERE replaced > 0")
    code, out, _ = run(capsys, "state", "maintain", "--dry-run")
    assert code == 0
    assert "1  replaced messages removed" in out
    code, _, err = run(capsys, "state", "maintain")
    assert code == 2
    assert "--yes" in err
    facts = json.loads(run(capsys, "state", "maintain", "--yes", "--json", "--vacuum")[1])
    assert {"step": "replaced", "count": 1, "what": "replaced messages removed"} in facts["steps"]
    assert run(capsys, "state", "maintain", "--dry-run")[1] == "There is nothing to remove.\n"


def test_maintain_removes_old_conversations_when_the_configuration_says_so(
    story: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "UPDATE sessions SET started_at = 1, last_active = 1, ended_at = 2 WHERE id = 'desk'"
    change(story, old)
    change(story, "UPDATE messages SET timestamp = 1 WHERE session_id = 'desk' AND replaced = 0")
    assert "older than" not in run(capsys, "state", "maintain", "--dry-run")[1]
    (story / "config.yaml").write_text("sessions: {auto_prune: true, retention_days: 60}\n")
    assert "1  sessions older than 60 days removed" in run(capsys, "state", "maintain", "--dry-run")[1]


def test_move_to_postgresql_gives_the_same_archive(
    story: Path, stores: TestStores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = stores.postgresql(empty=True)
    code, out, _ = run(capsys, "state", "move", "--to", url)
    assert code == 0
    assert "Every row was read back and compared" in out
    assert "HERMES_DATABASE_URL" in out
    made = []
    for name, address in (("here", story / "state.db"), ("there", url)):
        db = SessionDB(address)
        made.append(archive_write.export(db, tmp_path / f"{name}.zip")["files"])
        db.close()
    assert made[0] == made[1]
    code, _, err = run(capsys, "state", "move", "--to", url)
    assert code == 1
    assert "is not empty" in err
    stores.discard(url)


def test_one_command_leads_back_from_postgresql_to_the_homes_own_file(
    story: Path, stores: TestStores, capsys: pytest.CaptureFixture[str]
) -> None:
    url = stores.postgresql(empty=True)
    run(capsys, "state", "move", "--to", url)
    (story / ".env").write_text(f"OTHER=1\nHERMES_DATABASE_URL={url}\n")
    server = SessionDB(url)
    server.append_message("trip-2", "user", "said on the server")
    server.close()
    code, out, _ = run(capsys, "state", "move", "--home")
    assert code == 0 and "from the next start on" in out
    assert (story / ".env").read_text() == "OTHER=1\n"
    here = SessionDB(story / "state.db")
    assert here.get_messages("trip-2")[-1]["content"] == "said on the server"
    assert [hit["session_id"] for hit in here.search_messages('"said on the server"')] == ["trip-2"]
    here.close()
    before = SessionDB(Path(out.split("The old content of the file: ")[1].splitlines()[0]))
    assert before.get_messages("trip-2")[-1]["content"] != "said on the server"
    before.close()
    assert not list((story / "backups").glob(".moving-*"))
    code, _, err = run(capsys, "state", "move", "--home")
    assert code == 2 and "already" in err
    stores.discard(url)


@pytest.mark.parametrize("target", ["state.db", "mysql://x/y", "postgresql://u:hush@127.0.0.1:1/none", ""])
def test_a_target_that_cannot_be_is_one_line_without_its_password(
    target: str, story: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "state", "move", "--to", target)
    assert code in (1, 2)
    assert err.startswith("hermes: ")
    assert "hush" not in out + err


def test_the_store_itself_is_no_target(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "state", "move", "--to", f"sqlite:///{story / 'state.db'}")
    assert code == 1
    assert "same database" in err


def test_reindex(story: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "state", "reindex")
    assert code == 0
    assert "state.search.db" in out
    assert json.loads(run(capsys, "state", "reindex", "--json")[1])["behind"] == 0


def test_looking_at_an_empty_home_makes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["check"], ["maintain", "--dry-run"], ["reindex"], ["move", "--to", "sqlite:////nowhere/x.db"]):
        code, _, err = run(capsys, "state", *verb)
        assert code == 1
        assert "no conversations yet" in err
    assert not home.exists()


@pytest.mark.parametrize("verb", ["check", "maintain", "move", "reindex", "upgrade"])
def test_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "state", verb, "--help")
    assert code == 0
    assert f"hermes state {verb}" in out.split("examples:")[1]
