"""What scripts for hermes-agent call: it works, or the error says what to write instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from hermes_cli.commands import COMMANDS
from hermes_cli.framework import old_forms
from hermes_cli.framework.parser import parser_of
from hermes_config.version import VERSION

# The contract's list of hermes-agent's commands.
THEIRS = """
    chat model moa fallback secrets migrate gateway proxy lsp setup postinstall whatsapp whatsapp-cloud slack send login
    logout auth status cron webhook portal kanban project hooks doctor security dump debug backup checkpoints import
    config console pairing skills bundles plugins curator pets journey memory tools computer-use mcp sessions insights
    claw version update uninstall acp profile completion dashboard serve desktop logs prompt-size
"""
OTHERS = [name for name in THEIRS.split() if name not in {*COMMANDS, "version", "insights"}]
# Verbs and flags of the contract that Hermes spells otherwise or does not have.
REFUSED = [
    *(f"cron {verb}" for verb in ("tick", "edit x", "create 2h hi --repeat 3", "add 2h --script x --no-agent")),
    "webhook subscribe x", "hooks list", "profile list", "auth add", "kanban list",
    "sessions browse", "config migrate", "gateway list", "memory setup", "memory off", "memory reset",
    "plugins install a/b", "plugins update a", "plugins remove a", "skills search a",
    "skills tap a", "setup gateway", "setup terminal", "setup tts", "setup tools", "setup agent", "tools enable web",
    "tools disable web", "import backup.zip", "logs errors", "logs gui", "logs list",
    "chat -v -q hi", "chat --verbose -q hi", "-q hi -s dig", "-q hi --skills dig", "-q hi -w",
    "-q hi --worktree", "-q hi --checkpoints", "-q hi --accept-hooks", "-q hi --pass-session-id",
    "-q hi --ignore-user-config", "-q hi --ignore-rules", "-q hi --safe-mode", "-q hi --no-restore-cwd", "-q hi --tui",
    "-q hi --dev", "-p work -q hi", "--profile work -q hi", "--profile=work -q hi",
    "gateway run --replace", "gateway run -v", "gateway run -vv", "gateway run -q", "gateway run --no-supervise",
    "gateway run --external-supervisor", "gateway run --accept-hooks", "gateway start --system", "gateway stop --all",
    "gateway status --deep", "gateway status --full", "gateway status -l", "gateway install --system",
    "gateway install --run-as-user ada", "gateway install --start-now", "gateway install --no-start-on-login",
    "status --all", "status --deep", "doctor --ack x", "model --refresh", "setup --quick", "setup --reset",
    "setup --reconfigure", "setup --portal", "logs --level error", "logs gateway --since 1h", "logs --component x",
    "logs --session x", "insights --days 7", "insights --source cli", "sessions export - --only user-prompts",
    "sessions export - --redact", "sessions repair --no-backup", "mcp configure x", "mcp catalog", "mcp install x",
    "mcp add x --preset y", "mcp serve -v",
]  # fmt: skip
WORKS = [
    "version", "--version", "-V", "config path", "config env-path", "config check", "config show", "sessions list",
    "sessions list --source cli --limit 5", "sessions list --workspace /x", "sessions stats", "sessions optimize",
    "sessions repair", "sessions repair --check-only", "sessions prune --older-than 90 --dry-run -y",
    "sessions archive --source cron --dry-run -y", "insights", "memory status", "tools", "tools list",
    "tools --summary", "skills list", "plugins list", "pairing list", "pairing clear-pending", "logs",
    "logs agent -n 50", "completion bash", "send -l", "backup", "cron list", "cron status", "cron create 30m hi",
    "cron runs", "cron history --limit 3",
]  # fmt: skip


@pytest.fixture(autouse=True)
def there(home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("model: demo\nauto_title: false\ndemo: {tokens_per_second: 0}\n")


@pytest.fixture
def kept(run: Run) -> Run:
    assert run("-q", "hello").code == 0
    return run


@pytest.mark.parametrize("name", OTHERS)
def test_a_command_that_we_do_not_have_is_answered_with_what_to_do(run: Run, name: str) -> None:
    said = run(name)
    assert said.code == 2
    assert said.err == f"hermes: there is no command '{name}'. {old_forms.INSTEAD[name]}\n"


@pytest.mark.parametrize("line", REFUSED)
def test_a_form_that_we_do_not_have_is_answered_with_what_to_do(run: Run, line: str) -> None:
    said = run(*line.split())
    assert said.code == 2 and said.out == ""
    assert any(said.err.endswith(f". {hint}\n") for hint in old_forms.INSTEAD.values()), said.err


@pytest.mark.parametrize("line", WORKS)
def test_a_form_that_means_the_same_works(kept: Run, line: str) -> None:
    said = kept(*line.split())
    assert said.code == 0, said.err


def test_what_is_advised_exists() -> None:
    for advice in (*old_forms.INSTEAD.values(), *(" ".join(("hermes", *ours)) for ours in old_forms.SAME.values())):
        for command, verb in re.findall(r"\bhermes ([a-z]+)(?: ([a-z]+))?", advice):
            assert command in COMMANDS or command in ("opens",), advice
            verbs = (
                [one for one in parser_of(COMMANDS[command])._actions if one.dest == "==SUPPRESS=="]
                if command in COMMANDS
                else []
            )
            if verbs and verb:
                assert verb in (verbs[0].choices or ()) or verb in ("and", "there"), advice


def test_the_version_is_one_line(run: Run) -> None:
    assert run("version").out == run("--version").out == f"hermes {VERSION}\n"


def test_backup_alone_makes_a_backup(kept: Run, home: Path) -> None:
    assert kept("backup").code == 0
    assert list((home / "backups").iterdir()), "a script that calls it believes that there is one now"


def test_quiet_prints_the_bare_answer_and_the_session_on_stderr(run: Run) -> None:
    said = run("chat", "-Q", "-q", "hello")
    assert said.code == 0 and said.out.startswith("Hello!")
    found = re.fullmatch(r"session_id: (\S+)\n", said.err)
    assert found, said.err
    assert run("sessions", "show", found[1]).code == 0
    again = run("chat", "-q", "what did I say?", "--quiet", "--resume", found[1])
    assert again.err == f"session_id: {found[1]}\n"


def test_a_usage_file_has_the_figures_of_the_turn(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    bare = run("-z", "hello", "--usage-file", str(file))
    assert bare.code == 0 and bare.err == ""
    written = json.loads(file.read_text())
    assert (
        written["completed"] is True and written["total_tokens"] == written["input_tokens"] + written["output_tokens"]
    )
    refused = run("-z", "hello", "--usage-file", str(tmp_path / "no" / "file"))
    assert refused.code == 1 and refused.out.startswith("Hello!"), "the answer was paid for"
