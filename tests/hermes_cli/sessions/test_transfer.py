"""`hermes sessions export` and `import`: out and in again, whole, and never over something else."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_testing.clock import Clock

pytestmark = pytest.mark.usefixtures("named_store")


@pytest.fixture
def talks(db: SessionDB, clock: Clock) -> None:
    db.ledger.open(source="telegram", session_id="trip_1")
    db.set_session_title("trip_1", "Trip to Kyoto")
    db.append_message("trip_1", "user", "A week in 京都 🍜 with \x1b[31mred\x1b[0m and \u2028 breaks")
    db.append_message(
        "trip_1", "assistant", None, tool_calls=[{"id": "c", "function": {"name": "look", "arguments": "{}"}}]
    )
    db.append_message("trip_1", "tool", "```\nfound", tool_name="look", tool_call_id="c")
    db.ledger.rotate("trip_1", [{"role": "user", "content": "so far"}], new_id="trip_2")
    clock.advance(60)
    db.ledger.open(source="cli", session_id="desk")
    db.append_message("desk", "user", "hello")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`other()`: from now on commands work on another, empty home."""

    def move() -> None:
        monkeypatch.setenv("HERMES_DATABASE_URL", f"sqlite:///{tmp_path}/other/state.db")

    return move


def said(run, name: str) -> list[list[object]]:
    segments = run("sessions", "show", name, "--lineage", "--json").data["segments"]
    return [[message["content"] for message in segment["messages"]] for segment in segments]


@pytest.mark.parametrize("ending", ["zip", "jsonl"])
def test_what_is_exported_can_be_imported_elsewhere_and_says_the_same(run, talks, other, tmp_path, ending) -> None:
    file = tmp_path / f"all.{ending}"
    assert "Wrote 2 conversations" in run("sessions", "export", str(file)).out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = said(run, "Trip to Kyoto")
    other()
    assert "Imported" in run("sessions", "import", str(file)).out
    assert said(run, "Trip to Kyoto") == before
    assert {row["id"] for row in run("sessions", "list", "--json").data} == {"trip_2", "desk"}
    again = run("sessions", "import", str(file))
    assert again.code == 0
    assert "lready here" in again.out
    assert said(run, "Trip to Kyoto") == before


@pytest.mark.parametrize("ending", ["zip", "jsonl"])
def test_a_dry_run_of_either_direction_writes_nothing(run, db, talks, tmp_path, ending) -> None:
    file = tmp_path / f"all.{ending}"
    assert "Would write 2 conversations" in run("sessions", "export", str(file), "--dry-run").out
    assert not file.exists()
    run("sessions", "export", str(file))
    db.delete_session("desk")
    assert run("sessions", "import", str(file), "--dry-run").code == 0
    assert db.get_session("desk") is None


def test_one_some_or_a_source_can_be_chosen(run, talks) -> None:
    def ids(*arguments: str) -> list[str]:
        lines = run("sessions", "export", "-", *arguments).out.splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert ids("desk") == ["desk"]
    assert ids("--session-id", "trip_1", "--lineage") == ["trip_1", "trip_2"]
    assert ids("desk", "trip") == ["desk", "trip_1", "trip_2"]
    assert ids("--source", "telegram") == ["trip_1", "trip_2"]
    assert run("sessions", "export", "-", "nonsense").code == 1


def test_jsonl_is_one_object_a_session_with_its_messages(run, talks) -> None:
    first, second, _ = map(json.loads, run("sessions", "export", "-").out.splitlines())
    assert (first["id"], first["end_reason"], second["title"]) == ("trip_1", "compression", "Trip to Kyoto")
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool"]


def test_markdown_reads_well_and_holds_no_control_characters(run, talks, tmp_path) -> None:
    file = tmp_path / "trip.md"
    run("sessions", "export", str(file), "trip")
    page = file.read_text(encoding="utf-8")
    assert page.startswith("# Trip to Kyoto\n")
    assert "## Segment 1 of 2 · `trip_1`" in page
    assert "京都 🍜" in page
    assert "````\n```\nfound\n````" in page  # a fence in a result does not end its own
    assert "\x1b" not in page


def test_an_ending_that_says_nothing_is_refused(run, talks, tmp_path) -> None:
    done = run("sessions", "export", str(tmp_path / "a.foo"))
    assert done.code == 2 and ".foo" in done.err and ".zip, .jsonl, .json, .md" in done.err
    assert list(tmp_path.glob("a.*")) == []
    assert run("sessions", "export", str(tmp_path / "a.foo"), "--format", "md").code == 0


def test_a_file_is_replaced_only_when_that_is_wanted(run, talks, tmp_path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("mine")
    assert run("sessions", "export", str(file)).code == 2
    assert file.read_text() == "mine"
    assert run("sessions", "export", str(file), "--yes").code == 0
    assert file.read_text().startswith("# ")
    assert [path.name for path in tmp_path.glob(".*tmp")] == []


def test_the_database_is_never_overwritten_or_imported_as_an_export(run, talks, other, tmp_path) -> None:
    run("sessions", "export", str(tmp_path / "all.zip"))
    other()
    run("sessions", "import", str(tmp_path / "all.zip"))
    run("sessions", "search", "hello")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    for name in ("other/state.db", "other/state.db-wal", "link/state.db-shm", "other/state.search.db"):
        for arguments in (("export", str(tmp_path / name), "--yes"), ("import", str(tmp_path / name))):
            ran = run("sessions", *arguments)
            assert ran.code == 2
            assert "database" in ran.err
    assert "hello" in run("sessions", "show", "desk").out


@pytest.mark.parametrize("where", ["missing/folder/x.zip", "missing/x.jsonl", "."])
def test_a_place_that_cannot_be_written_is_told_in_one_line(run, talks, tmp_path, where) -> None:
    ran = run("sessions", "export", str(tmp_path / where))
    assert ran.code == 2
    assert ran.err.count("\n") == 1


GOOD = json.dumps({"id": "new_1", "source": "cli", "messages": [{"role": "user", "content": "hi"}]})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"{GOOD}\n{{broken\n", 2),
        (f"{GOOD}\n[1, 2]\n", 2),
        (f'{GOOD}\n\n{{"id": "x", "messages": [{{"role": "robot"}}]}}\n', 3),
        (f'{GOOD}\n{{"id": "{"i" * 5000}"}}\n', 2),
        (f'{GOOD}\n{{"id": "x", "messages": 7}}\n', 2),
        (f'{GOOD}\n{{"id": "x", "title": "{"t" * 500}"}}\n', 2),
        ("[" * 100_000, 1),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_imported(run, db, talks, tmp_path, content, line) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    ran = run("sessions", "import", str(file))
    assert ran.code == 2
    assert f"bad.jsonl:{line}" in ran.err
    assert "Nothing was imported" in ran.err
    assert db.get_session("new_1") is None


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", b"PK\x03\x04 no zip", b"PK\x05\x06" + b"\0" * 18])
def test_a_file_that_is_no_export_is_refused(run, db, talks, tmp_path, content) -> None:
    file = tmp_path / "what"
    file.write_bytes(content)
    ran = run("sessions", "import", str(file))
    assert ran.code != 0
    assert ran.err.count("\n") == 1
    assert run("sessions", "import", str(tmp_path / "absent")).code == 2
