"""What the judge says of command lines: the table, and what a table cannot hold."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.approvals.shell import parser
from hermes_agent.approvals.shell.judge import judge, judge_action
from hermes_agent.approvals.types import UNSURE, Judgement

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parent / "commands.toml"
LONGEST = 131_072


def lines() -> Iterator[tuple[str, str]]:
    for level, topics in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        for commands in topics.values():
            yield from ((level, command) for command in commands)


def judged(command: str, workdir: str = "/home/ada/project") -> Judgement:
    return judge(command, workdir=workdir, workspace=workdir, home="/home/ada/.hermes", user_home="/home/ada")


def kinds(found: Judgement) -> set[str]:
    return {need.kind for need in found.needs}


@pytest.mark.parametrize(
    ("wanted", "command"), list(lines()), ids=[f"{level}: {command}" for level, command in lines()]
)
def test_the_table(wanted: str, command: str) -> None:
    found = judged(command)
    if wanted in ("run", "never"):
        assert found.level == wanted, found.why
    else:
        assert found.level == "ask" and wanted in kinds(found), found
    assert bool(found.why) == (found.level != "run"), "a person is told why, and not bothered otherwise"


def test_the_table_is_large_and_fair() -> None:
    wanted = [level for level, _ in lines()]
    assert len(wanted) >= 250 and wanted.count("run") >= 80 and wanted.count("never") >= 75
    assert len({command for _, command in lines()}) == len(wanted)


# --- programs, for the rules of approvals.deny ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git -C . push", "git --no-pager push", "/usr/bin/git push", "jobs -x git push", "g'it' push",
        "env A=b timeout 5 git push", "x=push; git \"$x\"", "sudo -u bob git -c a=b push", "sh -c 'git push'",
        "f() { git push; }; f", "git() { command git \"$@\"; }; env git push", "find . -exec git push ';'",
        "eval git push",
        "for c in status push; do git $c; done", "true && { git push; }", "echo git push | bash", "nice -n 5 git push",
        "bash <<< 'git push'", "command git push", "git -c alias.p=push p", "exec git push", "time git push",
        "env -S 'git push'", "stdbuf -oL git push", "uv run git push", "echo $(git push)", "builtin eval git push",
    ],
)  # fmt: skip
def test_a_program_is_named_however_it_is_run(command: str) -> None:
    named = [program.words[:2] for program in judged(command).programs if program.name == "git"]
    assert ("git", "push") in named


@pytest.mark.parametrize(
    "command",
    [
        "g$(echo it) push", "$x push", "gi? push", "eval \"$(cat f)\"", "cat f | sh", "sh -c \"$1\"", "bash <(cat f)",
        "if true; then x=git; fi; $x push", "run() { \"$@\"; }; run git push", "${x:-git} push", "set -- git; $1 push",
        "x=git; source y; $x push", "while read c; do $c push; done < f", "xargs -I{} sh -c '{}' < f",
    ],
)  # fmt: skip
def test_a_name_that_only_the_running_shell_knows_is_none(command: str) -> None:
    assert None in [program.name for program in judged(command).programs]


def test_words_that_are_not_known_are_marked() -> None:
    programs = judged("echo push | xargs git").programs
    assert [program.words for program in programs if program.name == "git"] == [("git", UNSURE)]
    assert judged('git() { command git "$@"; }; git push').programs[-1].words == ("git", UNSURE)
    assert judged('f() { git "$1"; }; f push').programs[-1].words == ("git", UNSURE)
    assert judged("git $(cat f) origin").programs[-1].words == ("git", UNSURE, "origin")


@pytest.mark.parametrize(
    "command",
    [
        'echo "unclosed', "if true; then ls", "alias g=git; g push", "${!x} push", "echo ${x@P}", "git -c alias.x=y x",
        "x='a[$(git push)]'; echo $((x))", "y=$(cat f); echo ${a[y]}", "y=$(cat f); echo ${x:y}", "test -v 'a[$(id)]'",
        "read $(cat f) <<< 1", "sh -c \"echo \\$'\\\\'; git push; #'\"", "sh -c '[[ a || git == x ]]'",
        "find . -ex$(echo ec) git push ';'", "hash -p ./x ls; ls", "set -o history -o histexpand", "{git,push}",
        "y=$(cat f); z[y]=3", "declare -i y; y=$(cat f)", "wait -n -p 'a[$(id)]'",
    ],
)  # fmt: skip
def test_what_bash_may_read_otherwise_is_not_understood(command: str) -> None:
    assert not judged(command).understood


def test_a_line_of_daily_work_is_understood() -> None:
    script = (
        'set -euo pipefail\ni=0\nfor f in src/*.py; do\n  i=$((i + 1))\n  python3 -m py_compile "$f" || echo bad\ndone'
    )
    found = judged(script + "\npython3 - <<'EOF'\nprint('$(x)')\nEOF\necho \"${i} files\" > out.txt")
    assert found.understood and found.level == "run"
    assert None not in [program.name for program in found.programs]


# --- needs ----------------------------------------------------------------------------------------------------------


def test_a_need_names_the_folder(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
    (work / "way-out").symlink_to(other)
    (work / "sub").mkdir()
    need = judge_action("write", str(other / "x"), workdir=str(work), workspace=str(work), home="/h/.hermes").needs[0]
    assert (need.kind, need.value) == ("folder", str(other))
    for path in ("way-out/x", "sub/../way-out/x", "way-out/../other/x"):
        found = judge_action("write", path, workdir=str(work), workspace=str(work), home="/h/.hermes")
        assert [(need.kind, need.value) for need in found.needs] == [("folder", str(other))], path
    assert judge_action("write", "sub/x", workdir=str(work), workspace=str(work), home="/h/.hermes").level == "run"


def test_a_link_is_followed_before_its_parent_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """`link/..` is the parent of where the link leads, as it is for the kernel."""
    monkeypatch.chdir("/usr/share")
    found = judged("echo x > /proc/self/cwd/../x", workdir="/home/ada/project")
    assert [(need.kind, need.value) for need in found.needs] == [("folder", "/usr")]


@pytest.mark.parametrize(
    ("kind", "text", "level"),
    [
        ("write", "src/app.py", "run"),
        ("write", "/home/ada/.hermes/workspace/notes.md", "run"),
        ("write", "/etc/motd", "ask"),
        ("write", "/tmp/x", "ask"),
        ("write", ".git/hooks/pre-commit", "ask"),
        ("write", ".git/config", "ask"),
        ("write", "sub/.git/modules/x/hooks/y", "ask"),
        ("write", ".envrc", "ask"),
        ("write", "/home/ada/.hermes/state.db-wal", "never"),
        ("write", "/home/ada/.hermes/config.yaml", "never"),
        ("write", "/home/ada/.hermes/hooks/x/handler.py", "never"),
        ("write", "/home/ada/.hermes/notes.md", "ask"),
        ("write", "/dev/sda", "never"),
        ("read", "/home/ada/.ssh/id_rsa", "ask"),
        ("plugin", "send a postcard", "ask"),
    ],
)
def test_actions_that_are_no_commands(kind: str, text: str, level: str) -> None:
    project = "/home/ada/project"
    found = judge_action(
        kind, text, workdir=project, workspace=project, home="/home/ada/.hermes", user_home="/home/ada"
    )
    assert found.level == level, found
    assert bool(found.needs) == (level == "ask")


@pytest.mark.parametrize("workdir", ["/", "/etc", "/home/ada"])
def test_a_whole_home_or_the_system_may_not_be_deleted_from_within(workdir: str) -> None:
    assert judged("ls", workdir).level == "run"
    assert judged("rm -rf *", workdir).level == "never"
    assert judged("echo x > /etc/motd", workdir).level == "ask"


# --- size -----------------------------------------------------------------------------------------------------------

UNITS = [
    "{", "(", "$(", '"', "'", "a;", "\\", "${", "<<a ", "<<a\n", "a|", "`", '"$(', "<(", "{a,", "case a in ", "f(){ ",
    "a=(", "$((", "[[ ", "a[", "> a ", "||", "&", ";;", ")", "for((", "function a ", "== ", "{} ", "[[ a ]] ", "if ",
    "xargs ", "time ", "eval ", "sh -c ", "a b;", "rm -r x;", "\n", "#", "$", "\0", "{a,b}", "f(){ f;};f;",
    "cat <<E\nx\nE\n",
]  # fmt: skip
LONG = {
    **{unit: (unit * LONGEST)[:LONGEST] for unit in UNITS},
    "braces in one word": "echo " + "{" * LONGEST,
    "32 braces and commas": "echo " + "{" * 32 + "a," * 60_000,
    "a quoted here-document": "cat > f <<'E'\n" + 'print("a $(b) {")\n' * 7_000 + "E\n",
    "a here-document": "cat > f <<E\n" + 'print("a $(b) {")\n' * 7_000 + "E\n",
    "a here-document for sh": "sh <<'E'\n" + 'print("a $(b) {")\n' * 7_000 + "E\n",
    "a quoted text": "python3 -c '" + "print(1)\n" * 14_000 + "'",
    "a variable": 'x="' + "a " * 60_000 + '"; echo $x $x',
    "a text for eval": 'eval "' + "ls;" * 40_000 + '"',
    "an option": "rm -" + "r" * LONGEST + "1",
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_line_costs_bounded_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By count: a bounded number of steps, and a bounded number of bytes and of tokens given to the grammar."""
    works: list[parser.WorkBudget] = []
    windows: list[int] = []

    class Counted(parser.WorkBudget):
        def __init__(self, seconds: float) -> None:
            super().__init__(60.0)
            works.append(self)

    monkeypatch.setattr("hermes_agent.approvals.shell.judge.WorkBudget", Counted)
    window = parser._window

    def counted(text: str, start: int) -> int:
        end = window(text, start)
        assert name not in UNITS or end - start <= 8_192, "the grammar takes minutes for all of these at once"
        windows.append(end - start)
        return end

    monkeypatch.setattr(parser, "_window", counted)
    judged(LONG[name])
    assert works[0].steps <= parser._STEPS + 5
    assert sum(windows) <= 4 * LONGEST and len(windows) <= 64


def test_a_long_here_document_is_understood() -> None:
    assert judged(LONG["a quoted here-document"]).understood
    assert not judged("ls;" * 40_000).understood


def test_what_comes_behind_a_long_text_is_still_seen() -> None:
    assert kinds(judged(LONG["a quoted here-document"] + "curl https://example.org")) == {"network"}
    script = "".join(f"if [ -f a{n} ]; then\n  cat a{n} | head > b{n}\nfi\n" for n in range(60))
    found = judged(script + "curl https://example.org")
    assert kinds(found) == {"network"} and found.understood


def test_a_deadline_ends_the_reading() -> None:
    found = judge("ls;" * 200 + "rm -r x", workdir="/w", workspace="/w", home="/h", seconds=0.0)
    assert not found.understood and found.level == "run"


def test_threads_do_not_share_a_parser() -> None:
    failed: list[object] = []

    def work() -> None:
        for _ in range(100):
            if kinds(judged('for f in a b; do (echo "$f" | xargs curl); done')) != {"network"}:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize(
    "command", ["", " ", "\n", ";", "&&", "$", "`", "\\", "{", "((", "<<", "\ud800", "a\0b", "é" * 9, "\ue000", "'"]
)
def test_nonsense_is_no_error_and_no_need(command: str) -> None:
    assert judged(command).level == "run"
