"""Finding lines and files, and what is never shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ..conftest import Bench

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, params=["python", *(["ripgrep"] if shutil.which("rg") else [])])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Every test runs with our own program and, where it is installed, with ripgrep."""
    if request.param == "python":
        monkeypatch.setenv("PATH", str(tmp_path))
    return str(request.param)


@pytest.fixture
def tree(bench: Bench) -> Bench:
    bench.write("src/a.py", "import os\ndef needle():\n    pass\n")
    bench.write("src/deep/b.py", "x = 1\nneedle()\nneedle()\n")
    bench.write("README.md", "The needle is here.\n")
    return bench


def test_lines_are_found_by_file(tree: Bench) -> None:
    assert tree.call("search_files", pattern=r"needle\(").content == (
        "src/a.py:\n  2:def needle():\nsrc/deep/b.py:\n  2:needle()\n  3:needle()"
    )


def test_lines_around_a_match_are_marked_as_such(tree: Bench) -> None:
    content = tree.call("search_files", pattern="def", context=1).content
    assert content == "src/a.py:\n  1-import os\n  2:def needle():\n  3-    pass"


def test_names_counts_and_single_files(tree: Bench) -> None:
    assert tree.call("search_files", pattern="needle", output_mode="files_only").content == (
        "README.md\nsrc/a.py\nsrc/deep/b.py"
    )
    assert "src/deep/b.py: 2" in tree.call("search_files", pattern="needle", output_mode="count").content
    assert tree.call("search_files", pattern="needle", path="src/a.py").content == "src/a.py:\n  2:def needle():"
    assert "README" not in tree.call("search_files", pattern="needle", file_glob="*.py").content


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["src/a.py", "src/deep/b.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("[R]EADME*", ["README.md"]),
        ("*", ["README.md", "src/a.py", "src/deep/b.py"]),
    ],
)
def test_files_are_found_by_glob(tree: Bench, glob: str, found: list[str]) -> None:
    assert tree.call("search_files", pattern=glob, target="files").content.splitlines() == found


def test_pages_fit_together(bench: Bench) -> None:
    bench.write("many", "".join(f"hit {n}\n" for n in range(120)))
    seen: list[str] = []
    offset = 0
    while True:
        lines = bench.call("search_files", pattern="hit", limit=50, offset=offset).content.splitlines()
        seen += [line.partition(":")[2] for line in lines if line.startswith("  ")]
        if not lines[-1].startswith("[there is more"):
            break
        offset = int(lines[-1].rpartition(" ")[2].rstrip("]"))
    assert seen == [f"hit {n}" for n in range(120)]


def test_nothing_found_and_a_broken_pattern_are_answers(tree: Bench) -> None:
    assert tree.call("search_files", pattern="haystack").content == "Nothing was found."
    broken = tree.call("search_files", pattern="(")
    assert broken.is_error and "could not be made" in broken.content
    assert tree.call("search_files", pattern="x", path="nowhere").is_error


def test_what_git_ignores_binary_files_and_links_are_left_out(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "o.txt").write_text("needle")
    (bench.workdir / "link").symlink_to(tmp_path / "outside")
    (bench.workdir / ".git").mkdir()
    bench.write(".git/config", "needle")
    bench.write(".gitignore", "build/\n*.log\n!keep.log\n/only-here\n# comment\n")
    for name in ("build/x", "a.log", "keep.log", "only-here", "sub/only-here", "sub/build/y", "b.txt"):
        bench.write(name, "needle\n")
    bench.write("bin", b"\0needle")
    found = bench.call("search_files", pattern="needle", output_mode="files_only").content.splitlines()
    assert found == ["b.txt", "keep.log", "sub/only-here"]
    below = bench.call("search_files", pattern="needle", path="sub", output_mode="files_only").content
    assert below == "sub/only-here"


def test_credentials_and_the_closed_home_are_counted_and_not_shown(bench: Bench) -> None:
    bench.write(".env", "TOKEN=canary\n")
    bench.write("open.txt", "canary\n")
    (bench.ctx.home / "config.yaml").write_text("api_key: canary\n")
    (bench.ctx.home / "memories").mkdir()
    (bench.ctx.home / "memories/MEMORY.md").write_text("canary\n")
    outer = bench.ctx.home.parent
    content = bench.call("search_files", pattern="canary", path=str(outer), output_mode="content").content
    assert content.count("canary") == 1 and "open.txt" in content
    assert "[3 files that may hold credentials or belong to Hermes were left out]" in content
    bench.gate.refuses = ("read",)
    assert bench.call("search_files", pattern="canary", path=str(bench.ctx.home)).is_error


def test_pipes_and_very_deep_folders_hold_up_no_search(tree: Bench, program: str) -> None:
    """What a command can leave behind in a workspace."""
    if program == "ripgrep":
        pytest.skip("ripgrep waits for the pipe, until the search is ended")
    here = tree.ctx.workdir
    os.mkfifo(here / ".gitignore")
    os.mkfifo(here / "src/pipe.py")
    deep = here / "deep"
    deep.mkdir()
    folder = os.open(deep, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    tree.write("zz.py", "needle")
    began = time.monotonic()
    found = tree.call("search_files", pattern="needle", output_mode="files_only").content
    assert found == "README.md\nsrc/a.py\nsrc/deep/b.py\nzz.py"
    assert tree.call("search_files", pattern="zz.*", target="files").content == "zz.py"
    assert time.monotonic() - began < 30
    subprocess.run(["/bin/rm", "-rf", str(deep)], check=True)  # too deep for pytest


def test_a_pattern_that_runs_wild_is_killed_and_stops_nobody_else(bench: Bench, program: str) -> None:
    bench.write("evil", "a" * 40 + "!\n")
    bench.limited(search_files_seconds=1)
    began = time.monotonic()
    result = bench.call("search_files", pattern=r"(a+)+$")
    assert time.monotonic() - began < 15
    assert "Nothing was found" in result.content
    assert ("ended after" in result.content) == (program == "python"), "ripgrep's expressions cannot run wild"
