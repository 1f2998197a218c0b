"""Where the data is, and who may read it."""

import os
import stat
from pathlib import Path

import pytest

from hermes_config.errors import HomeError
from hermes_config.home import ensure_folder, ensure_home, hermes_home, private_open, write_atomic


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def loose_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_home_is_looked_up_at_each_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "one"))
    assert hermes_home() == tmp_path / "one"
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "two"))
    assert hermes_home() == tmp_path / "two"
    assert not (tmp_path / "two").exists()


def test_without_a_variable_it_is_a_folder_of_the_person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", "")
    assert hermes_home() == tmp_path / ".hermes"
    monkeypatch.setenv("HERMES_HOME", "~/elsewhere")
    assert hermes_home() == tmp_path / "elsewhere"


def test_a_new_home_and_its_folders_are_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "deep" / "home"))
    assert mode(ensure_home()) == 0o700
    assert mode(ensure_folder("logs")) == 0o700


def test_an_existing_home_is_closed_to_others_but_another_folder_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, stranger = tmp_path / "home", tmp_path / "stranger"
    for folder, file in ((home, "config.yaml"), (stranger, "photo.jpg")):
        folder.mkdir(mode=0o755)
        (folder / file).touch()
        monkeypatch.setenv("HERMES_HOME", str(folder))
        ensure_home()
    assert (mode(home), mode(stranger)) == (0o700, 0o755)


def test_a_home_that_cannot_be_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home, reason in ((tmp_path / "file", "not a folder"), (tmp_path / "file" / "below", "HERMES_HOME")):
        monkeypatch.setenv("HERMES_HOME", str(home))
        with pytest.raises(HomeError, match=reason):
            ensure_home()


def test_private_files_are_0600_whatever_the_umask(tmp_path: Path) -> None:
    with private_open(tmp_path / "note") as file:
        file.write("ü\n")
    write_atomic(tmp_path / "whole", "ü\n")
    for name in ("note", "whole"):
        assert mode(tmp_path / name) == 0o600
        assert (tmp_path / name).read_bytes() == "ü\n".encode()


def test_an_atomic_write_keeps_a_link_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "file"
    target.write_text("old")
    (tmp_path / "link").symlink_to(target)
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    assert [entry.name for entry in target.parent.iterdir()] == ["file"]


def test_a_failed_write_keeps_the_old_file_and_says_where(tmp_path: Path) -> None:
    in_the_way = tmp_path / "home" / "folder"
    in_the_way.mkdir(parents=True)
    with pytest.raises(HomeError, match="folder"):
        write_atomic(in_the_way, "text")
    assert list(in_the_way.parent.iterdir()) == [in_the_way]
