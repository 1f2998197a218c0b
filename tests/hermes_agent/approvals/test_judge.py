"""What the judge says of command lines: the table, and what a table cannot hold."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hermes_agent.approvals.judge import judge

from hermes_agent.approvals.base import Judgement

TABLE = Path(__file__).parent / "commands.toml"


def lines() -> Iterator[tuple[str, str]]:
    for level, topics in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        for commands in topics.values():
            yield from ((level, command) for command in commands)


def judged(command: str, workdir: str = "/home/ada/project") -> Judgement:
    return judge(command, workdir=workdir, home="/home/ada/.hermes", user_home="/home/ada")


@pytest.mark.parametrize(("level", "command"), list(lines()), ids=[f"{level}: {command}" for level, command in lines()])
def test_the_table(level: str, command: str) -> None:
    found = judged(command)
    assert found.level == level, found.why
    assert bool(found.why) == (level != "harmless"), "a person is told why, and not bothered otherwise"


def test_the_table_is_large_and_fair() -> None:
    levels = [level for level, _ in lines()]
    assert len(levels) >= 150 and levels.count("harmless") >= 75
    assert len({command for _, command in lines()}) == len(levels)


def test_calls_are_shown_as_they_would_run() -> None:
    assert judged("x=push; env A=b timeout 5 g'it' \"$x\" origin && ls").calls[-2:] == ("git push origin", "ls")


def test_a_link_out_of_the_workspace_is_outside(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "way-out").symlink_to(tmp_path / "elsewhere")
    assert judged("touch inside", str(work)).level == "harmless"
    assert judged("touch way-out/x", str(work)).level == "ask"
    assert judged("python way-out/x.py", str(work)).level == "ask"


@pytest.mark.parametrize("workdir", ["/", "/etc", "/home/ada"])
def test_a_whole_home_or_the_system_is_nobodys_workspace(workdir: str) -> None:
    assert judged("ls", workdir).level == "harmless"
    assert judged("rm -rf *", workdir).level == "never"
    assert judged("echo x > .bashrc", workdir).level == "ask"
    assert judged("echo x > /etc/motd", workdir).level == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "ls;" * 500 + "rm -rf /",
        "( " * 300 + "ls" + " )" * 300,
        "echo " + "$(" * 200 + "ls" + ")" * 200,
        "# " + "x" * 200_000,
    ],
)
def test_what_is_too_much_to_judge_is_not_run_at_all(command: str) -> None:
    assert judged(command).level == "never"


@pytest.mark.parametrize(
    "command", ["", " ", "\n", ";", "&&", "$", "`", "\\", "{", "((", "<<", "\ud800", "a\0b", "é" * 9]
)
def test_nonsense_is_never_harmful_and_never_an_error(command: str) -> None:
    assert judged(command).level in ("harmless", "ask")
    assert command.strip() == "" or judged(command).level == "ask"


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("x=ls; sh -c '$x rm -r build'", "ask"),  # the child does not have x: it runs rm
        ("/bin/../home/ada/project/ls", "ask"),
        ("cd sub; touch ../../x", "ask"),
        ("cd nowhere || true; touch ../x", "ask"),
        ("cd sub && touch ../x", "harmless"),
        ("find . -execdir touch x ';'", "ask"),
        ("xargs -I % sh -c 'ls %' < names.txt", "ask"),
        ("read PATH < x; ls", "ask"),
        ("for PATH in evil; do ls; done", "ask"),
        ("cat < /dev/tcp/example.org/80", "ask"),
        ("PS4='$(rm -r build)'; set -x; ls", "ask"),
        ("ps auxe", "ask"),
        ("cp -s /etc/passwd here", "ask"),
        ("make test SHELL=./evil", "ask"),
        ("i=0; while read -r l; do i=1; echo $((i)); done < a.txt", "harmless"),
        ("cat > report.md <<'EOF'\n# Title with `code` and $(dollars)\nEOF", "harmless"),
        ("set -euo pipefail; cd src && grep -rn TODO . | head -20", "harmless"),
        ("bash -lc 'cd src && ls -la'", "harmless"),
        ("git log --format='%h %s' -n 3 -- src/*.py", "harmless"),
        ("if ! grep -q foo a.txt; then echo missing >&2; exit 1; fi", "harmless"),
    ],
)
def test_finer_points(command: str, level: str) -> None:
    assert judged(command).level == level, judged(command).why
