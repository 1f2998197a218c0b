"""What a person names with @ goes along with the message, and nothing that they would not want to."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent import mentions
from hermes_agent.media import pictures
from hermes_agent.mentions import FileRefused
from hermes_agent.tools.base import FileContext
from hermes_config.config import of as config_of
from hermes_state import SessionDB
from hermes_state.ids import ConversationId

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.md").write_text("# Notes\n\n```sh\nls\n```\n")
    (folder / "src" / "app.py").write_text("".join(f"line_{number} = {number}\n" for number in range(1, 31)))
    (folder / "two words.txt").write_text("both\n")
    return folder


@pytest.fixture
def desk(home: Path, place: Path) -> Iterator[FileContext]:
    home.mkdir(mode=0o700, exist_ok=True)
    db, environ = SessionDB(home / "state.db"), {"HOME": str(place.parent)}
    yield FileContext(
        db=db,
        home=home,
        workdir=place,
        conversation_id=ConversationId(""),
        environ=environ,
        config=config_of(home, {}),
    )
    db.close()


def test_the_file_stands_below_the_words_in_a_fence_that_it_cannot_close(desk: FileContext) -> None:
    sent = mentions.whole("what is in @notes.md?", desk)
    assert sent.startswith("what is in @notes.md?\n\n[") and sent.endswith("````md\n# Notes\n\n```sh\nls\n```\n````")
    assert mentions.words(sent) == "what is in @notes.md?"
    assert mentions.files(sent) == ["notes.md (5 lines)"]
    assert mentions.whole(sent, desk) == sent, "what is asked again has its files already"


def test_some_lines_names_with_spaces_and_folders(desk: FileContext) -> None:
    sent = mentions.whole('see (@src/app.py:3-5), @file:src/app.py:30, @"two words.txt" and @src/.', desk)
    assert mentions.files(sent) == [
        "src/app.py (lines 3-5 of 30)", "src/app.py (lines 30-30 of 30)", "two words.txt (1 line)",
        "src/ (folder, 1 inside)",
    ]  # fmt: skip
    assert "line_3 = 3\nline_4 = 4\nline_5 = 5\n```" in sent and "line_6" not in sent and "\napp.py\n" in sent


@pytest.mark.parametrize(
    "said",
    ["hello @ada, @ 5 pm, a@notes.md", "@...", "what is @src/nothing.py?", f"@{'x' * 5_000}", "@\0", "@/", "no at all"],
)
def test_a_word_stays_a_word(desk: FileContext, said: str) -> None:
    assert mentions.whole(said, desk) == said


def test_a_file_that_cannot_go_along_refuses_the_message(desk: FileContext, place: Path, tmp_path: Path) -> None:
    (place / ".env").write_text("TOKEN=hunter2\n")
    (place / "picture.bmp").write_bytes(b"BM\0\0")
    (place / "long.log").write_text("x" * 300_000)
    (tmp_path / "beside.txt").write_text("beside\n")
    (place / "link.txt").symlink_to(tmp_path / "beside.txt")
    (place / "gone.txt").symlink_to(tmp_path / "nowhere")
    (place / "innocent.txt").symlink_to(place / ".env")
    os.mkfifo(place / "pipe")
    for name, why in {
        ".env": "may hold secrets", "innocent.txt": "may hold secrets", "picture.bmp": "is not text",
        "long.log": "too long to attach: 300,000", "../beside.txt": "leads out of", "link.txt": "leads out of",
        "gone.txt": "broken link", "pipe": "not a plain file", "notes.md:40-50": "40-50 is outside it",
        "file:nothing.md": "there is no file nothing.md", "/dev/null": "not a plain file",
    }.items():  # fmt: skip
        with pytest.raises(FileRefused) as refused:
            mentions.whole(f"look at @{name}", desk)
        line = refused.value.one_line()
        assert why in line and "\n" not in line and "hunter2" not in line
    sent = mentions.whole("look at @~/beside.txt", desk)
    assert mentions.files(sent) == ["~/beside.txt (1 line)"], "given whole, it may lie elsewhere"


def test_the_store_and_the_home_stay_closed(desk: FileContext, home: Path) -> None:
    (home / "config.yaml").write_text("model: demo\n")
    for name in ("state.db", "config.yaml"):
        with pytest.raises(FileRefused):
            mentions.whole(f"@{home / name}", desk)


def test_together_they_are_bounded(desk: FileContext, place: Path) -> None:
    for number in range(3):
        (place / f"part{number}.txt").write_text("y" * 90_000)
    with pytest.raises(FileRefused, match="too long"):
        mentions.whole("@part0.txt @part1.txt @part2.txt", desk)


@pytest.fixture
def repository(place: Path) -> Path:
    _git(place, "init", "-q")
    _commit(place, "the beginning")
    return place


def _git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path, words: str) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", words)


def test_changes_and_commits_of_git_go_along(desk: FileContext, repository: Path) -> None:
    (repository / "notes.md").write_text("# Staged\n")
    _git(repository, "add", "notes.md")
    (repository / "notes.md").write_text("# Staged\nand more\n")
    sent = mentions.whole("Look at @diff, please", desk)
    assert mentions.words(sent) == "Look at @diff, please" and "+and more" in sent and "+# Staged" not in sent
    assert mentions.files(sent)[0].startswith("diff (") and "\n```diff\ndiff --git a/notes.md" in sent
    staged = mentions.whole("and @staged.", desk)
    assert "+# Staged" in staged and "+and more" not in staged
    _commit(repository, "the second")
    both, last = mentions.whole("@git:2", desk), mentions.whole("@git:1", desk)
    assert "the beginning" in both and "the second" in both and "the beginning" not in last
    assert mentions.files(mentions.whole("@diff", desk)) == ["diff (empty)"]


def test_what_may_hold_secrets_is_left_out_of_changes(desk: FileContext, repository: Path) -> None:
    (repository / ".env").write_text("TOKEN=0\n")
    (repository / "src" / "id_rsa").write_text("old\n")
    _commit(repository, "keys by mistake")
    (repository / ".env").write_text("TOKEN=hunter2\n")
    (repository / "src" / "id_rsa").unlink()
    (repository / "notes.md").write_text("harmless\n")
    sent = mentions.whole("@diff", desk)
    assert "hunter2" not in sent and "-old" not in sent and "+harmless" in sent
    assert "[2 files that may hold secrets are left out]" in sent
    assert "TOKEN" not in mentions.whole("@git:1", desk)


def test_changes_are_those_of_the_working_folder(desk: FileContext, repository: Path) -> None:
    (repository / "notes.md").write_text("elsewhere\n")
    (repository / "src" / "app.py").write_text("here\n")
    sent = mentions.whole("@diff", dataclasses.replace(desk, workdir=repository / "src"))
    assert "+here" in sent and "elsewhere" not in sent and "a/app.py" in sent


def test_git_that_cannot_answer_refuses_the_message(desk: FileContext, place: Path) -> None:
    refusals = {
        "@diff": "not in a Git repository",
        "@git:0": "between 1 and 10 commits",
        "@git:11": "between 1 and 10 commits",
    }
    for word, why in refusals.items():
        with pytest.raises(FileRefused, match=why):
            mentions.whole(word, desk)
    _git(place, "init", "-q")
    with pytest.raises(FileRefused, match="no commit yet"):
        mentions.whole("@git:1", desk)
    _commit(place, "the beginning")
    (place / "notes.md").write_text("z" * 300_000)
    with pytest.raises(FileRefused, match="too long to attach"):
        mentions.whole("@diff", desk)
    with pytest.raises(FileRefused, match="git cannot be run"):
        mentions.whole("@diff", dataclasses.replace(desk, environ={"PATH": "/nowhere"}))


def test_nothing_that_the_repository_names_is_run(desk: FileContext, repository: Path, tmp_path: Path) -> None:
    (repository / ".gitattributes").write_text("*.md diff=own\n")
    for name in ("diff.external", "diff.own.command", "diff.own.textconv", "core.pager", "core.fsmonitor"):
        _git(repository, "config", name, f"touch {tmp_path}/{name}; false")
    (repository / "notes.md").write_text("changed\n")
    assert "+changed" in mentions.whole("@diff", desk)
    assert not list(tmp_path.glob("*.*")), "nothing was run"


@pytest.mark.parametrize("key", ["clean", "process"])
@pytest.mark.parametrize("where", [".gitattributes", ".git/info/attributes"])
def test_no_filter_of_a_repository_is_run(
    desk: FileContext, repository: Path, tmp_path: Path, key: str, where: str
) -> None:
    (repository / where).write_text("* filter=x.y\n")
    _git(repository, "config", f"filter.x.y.{key}", f"touch {tmp_path}/ran; cat")
    _git(repository, "config", "filter.x.y.required", "true")
    (repository / "notes.md").write_text("changed\n")
    subprocess.run(["git", "diff"], cwd=repository, check=False, capture_output=True, timeout=20)
    assert (tmp_path / "ran").exists(), "plain git runs it"
    (tmp_path / "ran").unlink()
    assert "+changed" in mentions.whole("@diff", desk)
    assert mentions.whole("@staged @git:1", desk)
    assert not (tmp_path / "ran").exists()


def test_a_filter_that_cannot_be_switched_off_refuses_the_message(desk: FileContext, repository: Path) -> None:
    with (repository / ".git/config").open("a") as file:
        file.write('[filter "a=b"]\n\tclean = cat\n')
    with pytest.raises(FileRefused, match="cannot be switched off"):
        mentions.whole("@diff", desk)


def test_nothing_is_run_in_a_submodule_or_to_check_a_signature(
    desk: FileContext, repository: Path, tmp_path: Path
) -> None:
    sub = repository / "sub"
    sub.mkdir()
    _git(sub, "init", "-q")
    (sub / "file").write_text("one\n")
    _commit(sub, "its beginning")
    _git(repository, "add", "sub")
    _commit(repository, "with a submodule")
    (sub / ".gitattributes").write_text("* filter=x\n")
    for name in ("core.fsmonitor", "filter.x.clean"):
        _git(sub, "config", name, f"touch {tmp_path}/ran; cat")
    (sub / "file").write_text("two\n")
    for name, value in (("diff.submodule", "diff"), ("log.showSignature", "true"), ("gpg.program", "./gpg")):
        _git(repository, "config", name, value)
    (repository / "gpg").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (repository / "gpg").chmod(0o755)
    subprocess.run(["git", "diff"], cwd=repository, check=False, capture_output=True, timeout=20)
    assert (tmp_path / "ran").exists(), "plain git runs it"
    (tmp_path / "ran").unlink()
    mentions.whole("@diff @staged @git:2", desk)
    assert not (tmp_path / "ran").exists()


def test_missing_objects_are_not_fetched(desk: FileContext, repository: Path, tmp_path: Path) -> None:
    (repository / "notes.md").write_text("staged\n")
    _git(repository, "add", "-A")
    found = subprocess.run(
        ["git", "rev-parse", ":notes.md"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    (repository / ".git/objects" / found[:2] / found[2:]).unlink()
    (repository / "notes.md").write_text("another text\n")  # else git takes the file for the object
    for name, value in (
        ("core.repositoryformatversion", "1"), ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"), ("remote.origin.url", str(repository)),
        ("remote.origin.uploadpack", f"touch {tmp_path}/ran; false"),
    ):  # fmt: skip
        _git(repository, "config", name, value)
    subprocess.run(["git", "diff", "--staged"], cwd=repository, check=False, capture_output=True, timeout=20)
    assert (tmp_path / "ran").exists(), "plain git runs it"
    (tmp_path / "ran").unlink()
    with pytest.raises(FileRefused):
        mentions.whole("@staged", desk)
    assert not (tmp_path / "ran").exists()


def test_a_secret_that_was_renamed_is_left_out_of_changes(desk: FileContext, repository: Path) -> None:
    lines = "".join(f"LINE_{number}=x\n" for number in range(30))
    (repository / ".env").write_text(f"{lines}TOKEN=hunter2\n")
    _commit(repository, "keys by mistake")
    (repository / ".env").unlink()
    (repository / "settings.txt").write_text(lines)
    _commit(repository, "renamed")
    assert "hunter2" not in mentions.whole("@git:1", desk)


def test_a_file_with_the_name_of_a_question(desk: FileContext, place: Path) -> None:
    (place / "diff").write_text("a file\n")
    for name in ("./diff", "file:diff"):
        assert "\na file\n" in mentions.whole(f"@{name}", desk)
    assert [one.text for one in mentions.offers("@di", place, {})] == ["@./diff", "@diff"]


# -- pictures ----------------------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 64


def test_a_picture_becomes_a_part_of_the_message(desk: FileContext) -> None:
    (desk.workdir / "a b.png").write_bytes(PNG)
    said, picture = mentions.whole('what is @"a b.png"?', desk)
    assert mentions.words(said["text"]) == 'what is @"a b.png"?'
    assert mentions.files(said["text"]) == ["a b.png (picture, 72 bytes)"]
    assert pictures.data_of(picture) == (PNG, "image/png")


@pytest.mark.parametrize(
    ("data", "why"), [(b"\x89PNG\r\n\x1a\n" + b"0" * 3_500_000, "bytes"), (b"\0not one", "is not text")]
)
def test_a_picture_that_no_model_takes_is_refused(desk: FileContext, data: bytes, why: str) -> None:
    (desk.workdir / "a.png").write_bytes(data)
    with pytest.raises(FileRefused, match=why):
        mentions.whole("@a.png", desk)


def test_a_dropped_picture_is_named(desk: FileContext) -> None:
    (desk.workdir / "a b.png").write_bytes(PNG)
    path = desk.workdir / "a b.png"
    escaped = str(path).replace(" ", "\\ ")
    for pasted in (str(path), f"'{path}'\n", f"file://{path}", escaped):
        assert mentions.dropped(pasted) == f'@"{path}" '
    for pasted in ("hello", "/no/such.png", f"{path} and more", "a b.png"):
        assert mentions.dropped(pasted) == pasted
