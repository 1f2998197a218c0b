"""Reading and writing files: pages, places that are not what they seem, and leave that was asked for."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from hermes_state.session_db import SessionDB

from ..conftest import Bench


def test_a_file_is_read_with_line_numbers(bench: Bench) -> None:
    bench.write("a.txt", "one\ntwo\n")
    assert bench.call("read_file", path="a.txt").content == "     1|one\n     2|two"


def test_a_long_file_comes_in_pages_that_fit_together(bench: Bench) -> None:
    bench.write("long.txt", "".join(f"line {n}\n" for n in range(1, 20_001)))
    seen: list[str] = []
    offset = 1
    while True:
        page = bench.call("read_file", path="long.txt", offset=offset, limit=2_000).content
        assert len(page) <= bench.ctx.db.limits.tool_result_chars
        lines = page.split("\n")
        seen += [line.partition("|")[2] for line in lines if "|" in line]
        if not lines[-1].startswith("[lines"):
            break
        offset = int(lines[-1].rpartition(" ")[2].rstrip("]"))
    assert seen == [f"line {n}" for n in range(1, 20_001)]


def test_one_line_is_no_lines(bench: Bench) -> None:
    assert "created: 1 line, 4 bytes." in bench.call("write_file", path="one.txt", content="one\n").content
    assert "created: 2 lines, 3 bytes." in bench.call("write_file", path="two.txt", content="a\nb").content


def test_one_endless_line_is_cut_and_says_so(bench: Bench) -> None:
    bench.write("min.js", "x" * 500_000)
    content = bench.call("read_file", path="min.js").content
    assert len(content) < 3_000 and "more characters in this line" in content


@pytest.mark.parametrize("args", [{"offset": 9}, {"offset": 0}, {"limit": -1}, {"offset": "two"}])
def test_a_page_that_is_not_there_is_an_error_in_words(bench: Bench, args: dict[str, object]) -> None:
    bench.write("a.txt", "one\n")
    result = bench.call("read_file", path="a.txt", **args)
    assert result.is_error and "\n" not in result.content


def test_an_image_is_described(bench: Bench) -> None:
    bench.write("p.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\0" * 100)
    assert "PNG image, 640 × 480" in bench.call("read_file", path="p.png").content


def test_a_file_that_is_too_large_is_not_opened(bench: Bench) -> None:
    bench.limited(read_file_bytes=64 * 1024)
    bench.write("big", "x" * 70_000)
    result = bench.call("read_file", path="big")
    assert result.is_error and "70,000 bytes" in result.content and "tail" in result.content


def test_a_missing_file_names_those_that_are_near(bench: Bench) -> None:
    bench.write("report.md", "")
    result = bench.call("read_file", path="reprot.md")
    assert result.is_error and "report.md" in result.content


def test_devices_pipes_sockets_and_the_kernels_folders_are_refused_at_once(bench: Bench) -> None:
    os.mkfifo(bench.workdir / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(bench.workdir / "socket"))
        (bench.workdir / "link").symlink_to("/proc/self/environ")
        for path in (
            "pipe",
            "socket",
            "/dev/zero",
            "/proc/self/environ",
            "/proc/self/root/etc/hostname",
            "link",
            "/sys",
        ):
            for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
                result = bench.call(name, path=path, **more)
                assert result.is_error and "plain file" in result.content, path


@pytest.mark.parametrize(
    "path",
    [
        ".env", "key.pem", "sub/../.env", "innocent.txt", ".ssh/config", "id_ed25519", ".codex/auth.json",
        ".claude/.credentials.json", ".AWS/config",
    ],
)  # fmt: skip
def test_credentials_are_read_only_with_leave(bench: Bench, path: str) -> None:
    others = (".codex/auth.json", ".claude/.credentials.json", ".AWS/config")
    for name in (".env", "key.pem", ".ssh/config", "id_ed25519", *others):
        bench.write(name, "SECRET=hunter2\n")
    (bench.workdir / "sub").mkdir()
    (bench.workdir / "innocent.txt").symlink_to(".env")
    bench.gate.refuses = ("read",)
    result = bench.call("read_file", path=path)
    assert result.is_error and "hunter2" not in result.content and "not approved" in result.content
    (action,) = bench.gate.asked
    assert action.kind == "read" and action.text == os.path.realpath(bench.workdir / path)
    bench.gate.refuses = ()
    assert "hunter2" in bench.call("read_file", path=path).content


def test_examples_and_public_keys_need_no_leave(bench: Bench) -> None:
    for name in (".env.example", "id_rsa.pub"):
        bench.write(name, "x")
        assert not bench.call("read_file", path=name).is_error
    assert bench.gate.asked == []


def test_the_home_is_closed_but_for_workspace_skills_and_own_results(bench: Bench) -> None:
    home = bench.ctx.home
    bench.gate.refuses = ("read",)
    for name in ("config.yaml", "memories/MEMORY.md", "results/of_another/x.txt", "logs/agent.log"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("private")
        assert "private" not in bench.call("read_file", path=str(path)).content, name
    (home / "skills").mkdir()
    (home / "skills" / "x.md").write_text("open")
    assert "open" in bench.call("read_file", path=str(home / "skills" / "x.md")).content


def test_the_database_is_never_opened_whoever_allows_it(bench: Bench, store: SessionDB) -> None:
    home = bench.ctx.home
    os.link(home / "state.db", bench.workdir / "hard.txt")
    (bench.workdir / "soft.txt").symlink_to(home / "state.db")
    for path in (home / "state.db", home / "state.db-wal", home / "state.search.db", "hard.txt", "soft.txt"):
        for name, more in (
            ("read_file", {}),
            ("write_file", {"content": "x"}),
            ("patch", {"old_string": "a", "new_string": "b"}),
        ):
            result = bench.call(name, path=str(path), **more)
            assert result.is_error and "database" in result.content, (path, name)
    assert bench.gate.asked == []
    store.append_message(bench.ctx.session_id(), "user", "still here")
    assert store.get_messages(bench.ctx.session_id())[-1]["content"] == "still here"


def test_a_write_asks_for_the_place_the_path_really_leads_to(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (bench.workdir / "link").symlink_to(outside)
    bench.gate.refuses = ("write",)
    result = bench.call("write_file", path="link/../link/new.txt", content="x")
    assert result.is_error and not (outside / "new.txt").exists()
    assert [(action.kind, action.text) for action in bench.gate.asked] == [("write", str(outside / "new.txt"))]


def test_a_place_that_moves_while_the_person_thinks_is_not_written(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (bench.workdir / "d").mkdir()

    def swap() -> None:
        (bench.workdir / "d").rmdir()
        (bench.workdir / "d").symlink_to(target)

    bench.gate.before_answer = swap
    result = bench.call("write_file", path="d/new.txt", content="x")
    assert result.is_error and list(target.iterdir()) == []


def test_a_write_replaces_the_file_keeps_its_mode_and_makes_folders(bench: Bench) -> None:
    script = bench.write("run.sh", "old")
    script.chmod(0o755)
    assert "replaced" in bench.call("write_file", path="run.sh", content="new\n").content
    assert script.read_text() == "new\n" and script.stat().st_mode & 0o777 == 0o755
    assert "created" in bench.call("write_file", path="a/b/c.txt", content="é\n").content
    assert (bench.workdir / "a/b/c.txt").read_bytes() == "é\n".encode()
    assert [path.name for path in bench.workdir.rglob("*.tmp")] == []


def test_what_cannot_be_written_says_why_in_one_line(bench: Bench) -> None:
    bench.write("file", "x")
    bench.limited(write_file_bytes=1_024)
    for args, why in (
        ({"path": "file/below", "content": "x"}, "cannot"),
        ({"path": ".", "content": "x"}, "folder"),
        ({"path": "big", "content": "x" * 2_000}, "2,000 bytes"),
        ({"path": "a\0b", "content": "x"}, "NUL"),
        ({"path": "x" * 300, "content": "x"}, "name too long"),
    ):
        result = bench.call("write_file", **args)
        assert result.is_error and why in result.content.replace("File name", "name") and "\n" not in result.content
