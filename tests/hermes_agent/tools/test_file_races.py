"""Files are opened where they were judged to be: links that are swapped meanwhile, and content that changes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hermes_agent.execution.base import CLOSED, Permit, content_digest
from hermes_agent.tools import paths
from hermes_agent.tools.base import Action, GateDecision
from hermes_config.config import of as config_of

from .conftest import Bench

pytestmark = pytest.mark.slow

CANARY = "canary of the world outside"
ROUNDS = 1_500


SWAP = """
import ctypes, os, sys, threading
here, link = map(os.fsencode, sys.argv[1:])
swap = ctypes.CDLL(None).renameat2
over = threading.Thread(target=sys.stdin.read, daemon=True)
over.start()
print("begun", flush=True)
count = 0
while over.is_alive():
    for _ in range(10):
        assert swap(-100, here, -100, link, 2) == 0
        count += 1
if count % 2:
    swap(-100, here, -100, link, 2)
print(count, flush=True)
"""


@contextmanager
def swapping(here: Path, outside: Path) -> Iterator[list[int]]:
    """Another process makes `here` a folder and a link to `outside` in turn, as quickly as it can."""
    link = here.with_name("link")
    link.symlink_to(outside)
    count = [0]
    command = [sys.executable, "-c", SWAP, str(here), str(link)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdin is not None and swapper.stdout is not None
        assert swapper.stdout.readline() == "begun\n"
        try:
            yield count
        finally:
            swapper.stdin.close()
            count[0] = int(swapper.stdout.readline())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / ".ssh"
    folder.mkdir()
    (folder / "file.txt").write_text(CANARY)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


class Inside:
    """A gate that permits what it is asked for in the workspace and refuses everything else."""

    async def permit(self, action: Action) -> GateDecision:
        return GateDecision(not action.outside, "it is outside")


@pytest.mark.parametrize("tool", ["read_file", "write_file", "patch", "remove", "new folders"])
def test_a_folder_that_is_swapped_with_a_link_never_leads_out(bench: Bench, outside: Path, tool: str) -> None:
    bench = bench.with_(gate=Inside())
    bench.write("d/file.txt", "inside 0\n")
    calls: dict[str, Callable[[int], tuple[str, dict[str, object]]]] = {
        "read_file": lambda n: ("read_file", {"path": "d/file.txt"}),
        "write_file": lambda n: ("write_file", {"path": "d/file.txt", "content": f"inside {n}\n"}),
        "patch": lambda n: (
            "patch",
            {"path": "d/file.txt", "old_string": "inside", "new_string": "inside"[: 5 + n % 2]},
        ),
        "remove": lambda n: ("patch", {"patch": "--- d/file.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-inside 0\n"}),
        "new folders": lambda n: ("write_file", {"path": f"d/new/{n % 7}/x", "content": "inside"}),
    }
    seen: list[str] = []

    async def go() -> None:
        for number in range(ROUNDS // (3 if tool in ("patch", "remove") else 2)):
            name, args = calls[tool](number)
            seen.append((await bench.acall(name, json.dumps(args))).content)

    before = contents(outside)
    with swapping(bench.workdir / "d", outside) as count:
        asyncio.run(go())
    assert contents(outside) == before and not (outside / "new").exists()
    assert not any(CANARY in text for text in seen)
    assert count[0] > 5 * len(seen), "several swaps in each call, however busy the machine is"


def test_the_race_is_real_without_descriptors(bench: Bench, outside: Path) -> None:
    """The same swap, judged and then opened by its name: it leads out."""
    place = bench.write("d/file.txt", "inside")
    with swapping(bench.workdir / "d", outside):
        for _ in range(200_000):
            with suppress(OSError):
                if os.path.realpath(place) == str(place) and place.read_text() == CANARY:
                    return
    pytest.fail("the swap is too slow to prove anything")


@pytest.mark.parametrize("call", [lambda place: paths.read_bytes(place, most=100), None])
def test_a_part_of_the_path_that_became_a_link_is_refused(
    bench: Bench, outside: Path, call: Callable[[paths.FilePlace], object] | None
) -> None:
    bench.write("a/b/file.txt", "inside")
    place = paths.locate("a/b/file.txt", bench.ctx)
    (bench.workdir / "a/b").rename(bench.workdir / "a/c")
    (bench.workdir / "a/b").symlink_to(outside)
    with pytest.raises(paths.ToolRefused, match=r"link|Not a directory"):
        if call is not None:
            call(place)
        else:
            digest = content_digest(place.real, b"inside", b"new")
            paths.carry_out(paths.Write(place, b"inside", b"new", digest, 1_000))
    assert (outside / "file.txt").read_text() == CANARY


def test_a_file_that_became_a_link_is_refused_and_never_followed(bench: Bench, outside: Path) -> None:
    file = bench.write("file.txt", "inside")
    place = paths.locate("file.txt", bench.ctx)
    file.unlink()
    file.symlink_to(outside / "file.txt")
    with pytest.raises(paths.ToolRefused):
        paths.read_bytes(place, most=100)
    digest = content_digest(place.real, b"inside", b"new")
    with pytest.raises(paths.ToolRefused):
        paths.carry_out(paths.Write(place, b"inside", b"new", digest, 1_000))
    assert (outside / "file.txt").read_text() == CANARY


def test_no_descriptor_stays_open(bench: Bench) -> None:
    bench.write("a/file.txt", "one\n")
    bench.call("read_file", path="a/file.txt")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        bench.call("read_file", path="a/file.txt")
        bench.call("write_file", path="a/file.txt", content=f"{number}\n")
        bench.call("write_file", path="a/file.txt/below", content="x")
        bench.call("read_file", path="missing/x")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


# -- what was approved ---------------------------------------------------------------------------------------------


def test_the_gate_is_told_the_old_and_the_new_content(bench: Bench) -> None:
    bench.write("a.txt", "old\n")
    bench.call("write_file", path="a.txt", content="new\n")
    bench.call("write_file", path="b.txt", content="b\n")
    bench.call("patch", path="a.txt", old_string="new", new_string="newer")
    bench.call("patch", patch="--- b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n")
    assert [(one.before, one.after) for one in bench.gate.asked] == [
        (b"old\n", b"new\n"), (None, b"b\n"), (b"new\n", b"newer\n"), (b"b\n", None),
    ]  # fmt: skip
    assert not (bench.workdir / "b.txt").exists()


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("tool", ["write_file", "patch"])
def test_a_file_that_changes_while_the_person_thinks_is_not_written(bench: Bench, tool: str, there: bool) -> None:
    file = bench.workdir / "a.txt"
    if there:
        file.write_text("old\n")
    bench.gate.before_answer = lambda: (file.write_text("theirs\n"), None)[1]
    if tool == "write_file":
        result = bench.call("write_file", path="a.txt", content="ours\n")
    elif there:
        result = bench.call("patch", path="a.txt", old_string="old", new_string="ours")
    else:
        result = bench.call("patch", patch="--- /dev/null\n+++ a.txt\n@@ -0,0 +1 @@\n+ours\n")
    assert result.is_error and "changed by somebody else" in result.content
    assert file.read_text() == "theirs\n"


def test_a_permit_for_other_content_does_not_cover_this(bench: Bench) -> None:
    """One changed byte between the card and the write."""

    class Other:
        async def permit(self, action: Action) -> GateDecision:
            assert action.after is not None
            digest = content_digest(action.text, action.before, action.after + b"!")
            return GateDecision(True, permit=Permit(digest, CLOSED))

    result = bench.with_(gate=Other()).call("write_file", path="a.txt", content="ours\n")
    assert result.is_error and not (bench.workdir / "a.txt").exists()

    class Exact:
        async def permit(self, action: Action) -> GateDecision:
            return GateDecision(True, permit=Permit(content_digest(action.text, action.before, action.after), CLOSED))

    assert not bench.with_(gate=Exact()).call("write_file", path="a.txt", content="ours\n").is_error


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".envrc", ".vscode/tasks.json", ".husky/pre-commit", ".mcp.json",
        ".claude/settings.json", ".hermes/plugins/x/plugin.py", ".env", "../config.yaml", "/etc/cron.d/x",
    ],
)  # fmt: skip
def test_what_other_programs_run_counts_as_outside_the_workspace(bench: Bench, path: str) -> None:
    bench.gate.refuses = ("write",)
    assert bench.call("write_file", path=path, content="x").is_error
    assert [one.outside for one in bench.gate.asked] == [True]


@pytest.mark.parametrize("path", ["a.txt", "Makefile", "src/.gitignore", ".github/workflows/ci.yml", "package.json"])
def test_a_file_of_the_project_is_inside(bench: Bench, path: str) -> None:
    assert not bench.call("write_file", path=path, content="x").is_error
    assert [one.outside for one in bench.gate.asked] == [False]


def test_a_link_to_what_other_programs_run_counts_as_it(bench: Bench) -> None:
    bench.write(".git/config", "[core]\n")
    (bench.workdir / "innocent").symlink_to(".git/config")
    bench.call("write_file", path="innocent", content="x")
    assert [one.outside for one in bench.gate.asked] == [True]


def test_a_folder_of_the_machine_is_no_workspace(bench: Bench) -> None:
    bench.gate.refuses = ("write",)
    bench.with_(workdir=Path("/")).call("write_file", path="/srv/x.txt", content="x")
    assert [one.outside for one in bench.gate.asked] == [True]


# -- secrets (M6) --------------------------------------------------------------------------------------------------


def test_the_homes_own_secrets_are_read_by_no_file_tool_unasked(bench: Bench) -> None:
    home = bench.ctx.home
    user_home = home.parent / "person"
    for path in (
        home / ".env", home / "config.yaml", home / "auth.json", user_home / ".kube/config",
        user_home / ".mozilla/firefox/x/logins.json", user_home / ".bash_history", user_home / ".config/gh/hosts.yml",
        user_home / ".vault-token", user_home / ".cache/huggingface/token",
    ):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    bench = bench.with_(environ={**bench.ctx.environ, "HOME": str(user_home)})
    bench.gate.refuses = ("read",)
    for tool, args in (
        *(("read_file", {"path": str(path)}) for path in (home / ".env", home / "config.yaml", home / "auth.json")),
        *(("read_file", {"path": f"~/{name}"}) for name in (".kube/config", ".bash_history", ".vault-token")),
        ("read_file", {"path": "/proc/self/environ"}),
        ("search_files", {"pattern": "canary", "path": str(home)}),
        ("search_files", {"pattern": "canary", "path": "~"}),
        ("search_files", {"pattern": "*", "target": "files", "path": "~"}),
        ("patch", {"path": "~/.vault-token", "old_string": "canary", "new_string": "x"}),
    ):
        found = bench.call(tool, **args).content
        assert CANARY not in found and "logins.json" not in found and "hosts.yml" not in found, (tool, args)


def test_a_missing_file_of_a_secret_folder_names_no_others(bench: Bench) -> None:
    bench.write(".ssh/id_production", "x")
    assert "id_production" not in bench.call("read_file", path=".ssh/id_productio").content


def test_the_owners_patterns_count(bench: Bench) -> None:
    bench.write("notes.vault", CANARY)
    bench.write("plain.txt", CANARY)
    bench = bench.with_(config=config_of(bench.ctx.home, {"sandbox": {"secrets": ["*.vault"]}}))
    bench.gate.refuses = ("read",)
    assert CANARY not in bench.call("read_file", path="notes.vault").content
    found = bench.call("search_files", pattern="canary").content
    assert "plain.txt" in found and "notes.vault" not in found and "1 file" in found
