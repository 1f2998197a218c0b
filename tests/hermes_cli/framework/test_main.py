"""The frame of the command line: what every command gets for free.

Most tests run the real command in a process of its own; those about terminals give it one.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from hermes_cli import commands, main
from hermes_cli.framework import output, prompts
from hermes_cli.framework.parser import Parser, Verbs, parser_of
from hermes_cli.tui import rpc_client
from hermes_config.version import VERSION, module_command

pytestmark = pytest.mark.slow

HERMES = [sys.executable, "-m", "hermes_cli"]


def hermes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HERMES, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
        timeout=30,
    )


def at_terminal(code: str, *, answer: str = "", **environment: str) -> str:
    """What a Python program shows on a terminal of 80 × 24 when a person types `answer`."""
    with Terminal([sys.executable, "-c", code], env=environment, lines=24) as window:
        window.keys(answer)
        window.end()
        return window.raw


def add_command(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """A command `probe` for this test: one module and one row, as any command is added."""
    (folder / "probe_command.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "probe_command", raising=False)
    monkeypatch.setitem(commands.COMMANDS, "probe", commands.Command("probe", "a probe", "probe_command"))


def probe(body: str) -> str:
    return f"def register(parser):\n    parser.set_defaults(run=run)\n\ndef run(args):\n    {body}\n"


def test_no_program_of_ours_imports_from_the_folder_it_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confined command can write modules there, and Hermes itself runs outside the sandbox."""
    for name in ("json", "sqlite3", "difflib", "yaml", "tui_gateway/__init__", "hermes_cli/__init__"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'escaped')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    client = rpc_client.RpcClient()
    client.start()
    client.close()
    assert client._process is not None and client._process.returncode == 0
    started = [*module_command("hermes_cli"), "--version"]
    assert subprocess.run(started, capture_output=True, check=True).stdout
    shutil.rmtree("hermes_cli")  # Python itself finds that one first when a person starts Hermes with -m
    asked = [*HERMES, "-q", "hello", "--model", "demo"]
    assert subprocess.run(asked, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout
    assert not (tmp_path / "escaped").exists()


# Help and version


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; from hermes_cli.main import main; main(['--help'])\n"
        "heavy = {'argparse', 'json', 'yaml', 'apsw', 'dataclasses', 'typing', 'hermes_state'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_with_src()
    )
    for row in commands.COMMANDS.values():
        assert f"  {row.name} " in ran.stdout
        assert row.help in ran.stdout
    assert ran.stdout.endswith("imported: []\n")


def _with_src() -> dict[str, str]:
    # Without site-packages, so that only what our own code imports is counted.
    return {**os.environ, "PYTHONPATH": str(Path(main.__file__).parents[1])}


def test_version_is_told() -> None:
    assert hermes("--version").stdout == f"hermes {VERSION}\n"


@pytest.mark.parametrize("name", sorted(commands.COMMANDS))
def test_every_command_and_verb_has_help_and_every_verb_an_example(name: str) -> None:
    parser = parser_of(commands.COMMANDS[name])
    actions = [action for action in parser._actions if action.nargs == "A..."]
    for parsers in (action.choices for action in actions):
        assert isinstance(parsers, dict)
        for verb, below in parsers.items():
            assert f"hermes {name} {verb}" in below.format_help().partition("examples:")[2]
    if not actions:
        assert f"hermes {name}" in parser.format_help().partition("examples:")[2]


def test_a_noun_alone_shows_its_verbs() -> None:
    ran = hermes("config")
    assert ran.returncode == 0
    assert "verbs:" in ran.stdout


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["confg"], "Did you mean hermes config?"),
        (["\x1b[31mevil\n"], "hermes --help lists all commands."),
        (["config", "chek"], "hermes config has no verb 'chek'. Did you mean hermes config check?"),
        (["config", "zzz"], "hermes config has no verb 'zzz'. See hermes config --help."),
        (["sessions", "list", "--limt", "3"], "unrecognized arguments: --limt 3. Did you mean --limit?"),
        (["-q", "hi", "--modle", "demo"], "Did you mean --model?"),
        (["sessions", "export"], "required: FILE. See"),
        (["config", "set", "only-a-key"], "VALUE"),
        (["config", "show", "--unknown"], "--unknown"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    ran = hermes(*arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("hermes: ")
    assert ran.stderr.count("\n") == 1
    assert words in ran.stderr
    assert "\x1b" not in ran.stderr


def test_an_error_of_ours_is_one_line_with_file_line_and_key(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("sessions:\n  retention_days: soon\n")
    ran = hermes("config", "check")
    assert ran.returncode == 1
    assert ran.stderr == (
        f"hermes: sessions.retention_days: must be a whole number of at least 1, not 'soon' ({home}/config.yaml:2)\n"
    )


def test_an_error_at_a_terminal_is_wrapped_between_words() -> None:
    with Terminal([*HERMES, "--resume", "nobody said that", "-q", "hello"], columns=40) as window:
        assert window.end() == 1
    assert window.shown.splitlines() == [
        'hermes: no conversation "nobody said',
        'that". hermes sessions list shows all',
        "conversations.",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: a home of another account")
def test_root_writes_nothing_into_a_home_of_somebody_else(home: Path) -> None:
    home.mkdir()
    os.chown(home, 65533, -1)
    for arguments in (["config", "set", "timezone", "Etc/UTC"], ["-q", "hello", "--model", "demo"], ["gateway", "run"]):
        ran = hermes(*arguments)
        assert ran.returncode == 1 and "sudo -u '#65533' hermes" in ran.stderr
    assert hermes("doctor").stderr == "" and list(home.iterdir()) == []
    os.chown(home, 0, -1)
    assert hermes("config", "set", "timezone", "Etc/UTC").returncode == 0


def test_a_defect_is_one_line_and_a_private_report_without_secrets(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / ".env").write_text("BOT=sesame-street-42\n")
    monkeypatch.setenv("SOME_API_KEY", "key-from-environment")
    body = "raise ValueError('sesame-street-42 key-from-environment postgresql://u:hunter2@h/d')"
    add_command(monkeypatch, tmp_path, probe(body))
    assert main.main(["probe"]) == 70
    line = capsys.readouterr().err
    assert line.startswith("hermes: internal error: ValueError: ")
    assert line.count("\n") == 1
    (report,) = (home / "logs").iterdir()
    assert str(report) in line
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert "probe_command.py" in text
    for secret in ("sesame", "key-from-environment", "hunter2"):
        # The source line in the traceback is part of the report, so the secrets are gone from it too.
        assert secret not in text + line


def test_only_the_newest_reports_are_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "logs").mkdir(parents=True)
    for number in range(30):
        (home / "logs" / f"crash-20200101-0000{number:02}-1.txt").touch()
    add_command(monkeypatch, tmp_path, probe("raise ValueError"))
    main.main(["probe"])
    kept = sorted(path.name for path in (home / "logs").iterdir())
    assert len(kept) == 20
    assert kept[0] == "crash-20200101-000011-1.txt"
    assert kept[-1] in capsys.readouterr().err


def test_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_command(monkeypatch, tmp_path, probe("raise ValueError('inside')"))
    monkeypatch.setenv("HERMES_DEBUG", "1")
    with pytest.raises(ValueError, match="inside"):
        main.main(["probe"])


def test_ctrl_c_is_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    add_command(monkeypatch, tmp_path, probe("raise KeyboardInterrupt"))
    assert main.main(["probe"]) == 130
    assert capsys.readouterr().err == "hermes: interrupted\n"


def test_a_reader_that_goes_away_is_no_complaint() -> None:
    writing = subprocess.Popen(
        [*HERMES, "config", "limits"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )
    assert writing.stdout is not None
    writing.stdout.close()
    assert writing.stderr is not None
    assert writing.stderr.read() == b""
    writing.stderr.close()
    assert writing.wait() == 141


def test_a_signal_is_the_exit_code_although_the_reader_is_gone_with_it() -> None:
    """A closed terminal: what was still to be said is dropped. Python would exit with 120 for it."""
    code = "import sys; from hermes_cli import main; main.main = lambda: (print('said'), sys.exit(129)); main.run()"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=environ, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (129, b"")


@pytest.mark.parametrize(
    ("fault", "code"), [("raise UsageError('no')", 2), ("raise KeyboardInterrupt", 130), ("raise ValueError", 70)]
)
def test_what_was_printed_before_a_failure_reaches_a_pipe(tmp_path: Path, home: Path, fault: str, code: int) -> None:
    body = f"print('the first half')\n    from hermes_config.errors import UsageError\n    {fault}"
    (tmp_path / "probe_command.py").write_text(probe(body), encoding="utf-8")
    asked = (
        "import sys; from hermes_cli import commands, main; sys.argv[1:] = ['probe'];"
        "commands.COMMANDS['probe'] = commands.Command('probe', 'a probe', 'probe_command'); main.run()"
    )
    environment = {**os.environ, "HERMES_HOME": str(home), "PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stdout) == (code, "the first half\n")
    assert ran.stderr.startswith("hermes: ") and ran.stderr.count("\n") == 1


def test_an_error_that_nobody_can_be_told_keeps_its_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([*HERMES, "nonsense"], stderr=full, check=False, timeout=30).returncode == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_before_the_start_is_no_defect(closed: str, home: Path) -> None:
    for arguments, code in (("config limits", 0), ("setup", 2), ("nonsense", 2)):
        line = f"{' '.join(HERMES)} {arguments} {closed}"
        ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=30)
        assert (ran.returncode, "internal error" in ran.stderr) == (code, False), ran.stderr


# Output


def test_json_is_one_document_in_real_characters(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text('title: 京都 "quoted"\n', encoding="utf-8")
    ran = hermes("config", "show", "--json", PYTHONIOENCODING="utf-8")
    assert json.loads(ran.stdout)["title"] == '京都 "quoted"'
    assert ran.stdout.count("\n") == 1
    narrow = hermes("config", "show", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(narrow.stdout) == json.loads(ran.stdout)


def test_json_loses_nothing_of_a_lone_surrogate(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json(["京\ud83d"])
    printed = capsys.readouterr().out
    printed.encode()
    assert json.loads(printed) == ["京\ud83d"]


def test_json_cannot_do_anything_to_a_terminal_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2J\x7f\x85\x9b31m\u2028\u202eb\u2066c 京"
    output.print_json({hostile: hostile})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {hostile: hostile}
    assert printed.count("\n") == 1 and all(c.isprintable() for c in printed.rstrip()) and "京" in printed


def test_a_character_the_terminal_cannot_show_does_not_end_the_command(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("title: 京都\n", encoding="utf-8")
    ran = hermes("config", "get", "title", PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stdout) == (0, "??\n")


def test_columns_line_up_whatever_the_script() -> None:
    rows = [("京都 trip", "1"), ("cafe\u0301", "22"), ("plain", "333")]
    drawn = output.table((output.Column("title"), output.Column("n", right=True)), rows).splitlines()
    assert drawn == ["title        n", "京都 trip    1", "cafe\u0301        22", "plain      333"]


def test_only_columns_that_may_shrink_do_and_wide_characters_are_not_cut_in_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "window", lambda: 37)
    columns = (output.Column("id"), output.Column("preview", shrinks=True))
    lines = output.table(columns, [("20260701_100000_c11a01", "京都京都京都京都京都")]).splitlines()
    assert lines[1] == "20260701_100000_c11a01  京都京都京都…"


def test_stored_text_cannot_reach_the_terminal_as_a_command() -> None:
    hostile = "a\x1b]0;owned\x07b\x9b31mc\u202ed\r\ne\x00\ud800"
    (_, line) = output.table((output.Column("title"),), [(hostile,)]).splitlines()
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in line)
    assert "\u202e" not in line
    line.encode()


def test_a_pipe_gets_plain_text_and_a_terminal_gets_colour_unless_told_not_to() -> None:
    code = "from hermes_cli.framework import output; print(output.style('x', 'red'))"
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert piped.stdout == "x\n"
    assert "\x1b[31mx\x1b[0m" in at_terminal(code)
    assert "\x1b" not in at_terminal(code, NO_COLOR="1")


def test_long_text_is_paged_at_a_terminal_only(tmp_path: Path) -> None:
    pager = f"{sys.executable} -c 'import sys; print(\"paged\", len(sys.stdin.readlines()))'"
    code = "from hermes_cli.framework import output; output.page('line\\n' * {})"
    assert "paged 101" in at_terminal(code.format(100), PAGER=pager)
    assert "paged" not in at_terminal(code.format(5), PAGER=pager)
    assert "paged 1" in at_terminal("from hermes_cli.framework import output; output.page('x' * 20_000)", PAGER=pager)
    piped = subprocess.run(
        [sys.executable, "-c", code.format(100)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PAGER": pager},
    )
    assert piped.stdout.count("line") == 100


# A pager, or an editor when it is given a file: it changes the terminal, and Ctrl-C is one of its keys.
_PROGRAM = """
import os, signal, sys, termios, tty
if len(sys.argv) < 2:
    sys.stdin.read()
window = os.open("/dev/tty", os.O_RDWR)
before = termios.tcgetattr(window)
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"still here\\n"))
tty.setcbreak(window)
os.write(1, b"at work\\n")
while os.read(window, 1) != b"q":
    pass
termios.tcsetattr(window, termios.TCSANOW, before)
for name in sys.argv[1:]:
    open(name, "w").write("note: kept")
"""
_AND_THEN = """
import sys, termios
from hermes_cli.main import main
code = main(sys.argv[1:])
print("echo is", "on" if termios.tcgetattr(0)[3] & termios.ECHO else "off")
sys.exit(code)
"""


@pytest.mark.parametrize("verb", ["limits", "edit"])
def test_ctrl_c_in_a_pager_or_editor_is_its_own_and_the_terminal_stays_right(
    verb: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    program = f"{sys.executable} {tmp_path}/program.py"
    command = [sys.executable, "-c", _AND_THEN, "config", verb]
    with Terminal(command, env={"PAGER": program, "EDITOR": program}, lines=24) as window:
        window.see("at work")
        window.press("ctrl-c")
        window.see("still here")
        window.keys("q")
        assert window.end() == 0
        assert "echo is on" in window.shown
    if verb == "edit":
        assert (home / "config.yaml").read_text() == "note: kept"


def test_a_pager_that_ends_by_ctrl_c_ends_the_command(home: Path, tmp_path: Path) -> None:
    (tmp_path / "pager").write_text("#!/bin/sh\necho at work\nexec sleep 60\n")
    (tmp_path / "pager").chmod(0o700)
    with Terminal([*HERMES, "config", "limits"], env={"PAGER": f"{tmp_path}/pager"}, lines=24) as window:
        window.see("at work")
        window.press("ctrl-c")
        assert window.end() == 130


@pytest.mark.parametrize("pager", ["no-such-pager", "less 'with an open quote", "/"])
def test_without_a_pager_the_text_is_shown_as_it_is(pager: str) -> None:
    code = "from hermes_cli.framework import output; output.page('line\\n' * 100)"
    assert at_terminal(code, PAGER=pager).count("line") == 100


def test_a_question_is_answered_at_a_terminal_and_refused_without_one() -> None:
    code = "from hermes_cli.framework import prompts; prompts.confirm('Delete it?', yes=False); print('go' + 'ing on')"
    assert "going on" in at_terminal(code, answer="y\n")
    declined = at_terminal(code, answer="\n")
    assert "Nothing was changed" in declined and "going on" not in declined
    refused = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "Add --yes" in refused.stderr
    prompts.confirm("Delete it?", yes=True)


def test_a_limit_must_be_a_whole_number_from_one_up() -> None:
    parser = Parser(prog="hermes probe")
    Verbs(parser).add("list", lambda _: 0, "list", limit=20)
    assert parser.parse_args(["list"]).limit == 20
    for bad in ("0", "-3", "x", "9" * 40, "1.5", "²"):
        with pytest.raises(Exception, match=r"whole number from 1 up|expected one argument"):
            parser.parse_args(["list", "--limit", bad])
