"""What a person names with @ goes along with the message, and nothing that they would not want to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent import references
from hermes_agent.references import Desk, FileRefused
from hermes_state import SessionDB
from hermes_state.ids import ConversationId


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.md").write_text("# Notes\n\n```sh\nls\n```\n")
    (folder / "src" / "app.py").write_text("".join(f"line_{number} = {number}\n" for number in range(1, 31)))
    (folder / "two words.txt").write_text("both\n")
    return folder


@pytest.fixture
def desk(home: Path, place: Path) -> Iterator[Desk]:
    home.mkdir(mode=0o700, exist_ok=True)
    db, environ = SessionDB(home / "state.db"), {"HOME": str(place.parent)}
    yield Desk(db=db, home=home, workdir=place, conversation_id=ConversationId(""), environ=environ)
    db.close()


def test_the_file_stands_below_the_words_in_a_fence_that_it_cannot_close(desk: Desk) -> None:
    sent = references.whole("what is in @notes.md?", desk)
    assert sent.startswith("what is in @notes.md?\n\n[") and sent.endswith("````md\n# Notes\n\n```sh\nls\n```\n````")
    assert references.words(sent) == "what is in @notes.md?"
    assert references.files(sent) == ["notes.md (5 lines)"]
    assert references.whole(sent, desk) == sent, "what is asked again has its files already"


def test_some_lines_names_with_spaces_and_folders(desk: Desk) -> None:
    sent = references.whole('see (@src/app.py:3-5), @file:src/app.py:30, @"two words.txt" and @src/.', desk)
    assert references.files(sent) == [
        "src/app.py (lines 3-5 of 30)", "src/app.py (lines 30-30 of 30)", "two words.txt (1 line)",
        "src/ (folder, 1 inside)",
    ]  # fmt: skip
    assert "line_3 = 3\nline_4 = 4\nline_5 = 5\n```" in sent and "line_6" not in sent and "\napp.py\n" in sent


@pytest.mark.parametrize(
    "said",
    ["hello @ada, @ 5 pm, a@notes.md", "@...", "what is @src/nothing.py?", f"@{'x' * 5_000}", "@\0", "@/", "no at all"],
)
def test_a_word_stays_a_word(desk: Desk, said: str) -> None:
    assert references.whole(said, desk) == said


def test_a_file_that_cannot_go_along_refuses_the_message(desk: Desk, place: Path, tmp_path: Path) -> None:
    (place / ".env").write_text("TOKEN=hunter2\n")
    (place / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (place / "long.log").write_text("x" * 300_000)
    (tmp_path / "beside.txt").write_text("beside\n")
    (place / "link.txt").symlink_to(tmp_path / "beside.txt")
    (place / "gone.txt").symlink_to(tmp_path / "nowhere")
    (place / "innocent.txt").symlink_to(place / ".env")
    os.mkfifo(place / "pipe")
    for name, why in {
        ".env": "may hold secrets", "innocent.txt": "may hold secrets", "picture.png": "is not text",
        "long.log": "too long to go along: 300,000", "../beside.txt": "leads out of", "link.txt": "leads out of",
        "gone.txt": "leads nowhere", "pipe": "not a plain file", "notes.md:40-50": "there is no 40-50",
        "file:nothing.md": "there is no file nothing.md", "/dev/null": "not a plain file",
    }.items():  # fmt: skip
        with pytest.raises(FileRefused) as refused:
            references.whole(f"look at @{name}", desk)
        line = refused.value.one_line()
        assert why in line and "\n" not in line and "hunter2" not in line
    sent = references.whole("look at @~/beside.txt", desk)
    assert references.files(sent) == ["~/beside.txt (1 line)"], "given whole, it may lie elsewhere"


def test_the_store_and_the_home_stay_closed(desk: Desk, home: Path) -> None:
    (home / "config.yaml").write_text("model: demo\n")
    for name in ("state.db", "config.yaml"):
        with pytest.raises(FileRefused):
            references.whole(f"@{home / name}", desk)


def test_together_they_are_bounded(desk: Desk, place: Path) -> None:
    for number in range(3):
        (place / f"part{number}.txt").write_text("y" * 90_000)
    with pytest.raises(FileRefused, match="too long"):
        references.whole("@part0.txt @part1.txt @part2.txt", desk)
