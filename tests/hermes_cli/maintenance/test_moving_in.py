"""A home of hermes-agent that a person has settled in: the table, the refusal, the acknowledgement, the start."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.old_homes import settled_home

from hermes_agent import home_inventory

pytestmark = pytest.mark.slow

UNSAFE = [
    "agent.system_prompt", "hooks.pre_tool_call", "plugins/guardian", "privacy.redact_pii", "telegram.allowed_chats",
    "terminal.backend", "webhooks/deploys",
]  # fmt: skip
HARMLESS = [
    ".env DISCORD_BOT_TOKEN", ".env HERMES_YOLO_MODE", "agent.gateway_notify_interval", "approvals.cron_mode",
    "approvals.destructive_slash_confirm", "auth.json", "cron",
    "delegation.subagent_auto_approve", "hooks.post_tool_call",
    "hooks_auto_accept", "jobs/Weekly report",
    "platforms.discord", "platforms.telegram.allowed_users",
    "plugins/old", "quick_commands", "skills.creation_nudge_interval", "skills.write_approval",
    "terminal.docker_image", "tts", "web.backend",
]  # fmt: skip
USED = [
    ".env OPENROUTER_API_KEY", ".env TELEGRAM_ALLOWED_USERS", ".env TELEGRAM_BOT_TOKEN", "agent.gateway_timeout",
    "agent.max_turns", "approvals.deny", "approvals.mode", "auxiliary.vision.model", "command_allowlist",
    "hooks.enabled", "hooks/gatekeeper", "hooks/greeter", "jobs/Morning briefing", "jobs/b1b2c3d4e5f6",
    "mcp_servers.github.args", "mcp_servers.github.command", "mcp_servers.github.env.GITHUB_TOKEN",
    "mcp_servers.search.headers.Authorization", "mcp_servers.search.url", "memory.memory_char_limit",
    "memory.nudge_interval", "memory.write_approval", "model.default", "model.provider", "plugins.disabled",
    "plugins.enabled", "plugins/tally", "security.website_blocklist.domains", "security.website_blocklist.enabled",
    "telegram.require_mention", "terminal.timeout",
]  # fmt: skip


def hermes(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes_cli", *map(str, arguments)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ}, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return settled_home(tmp_path / "theirs")


def table_of(printed: str) -> str:
    """The table, from its titles to its end."""
    return printed[printed.index("Entry  ") :].strip()


def names(entries: list[dict[str, object]], use: str) -> list[object]:
    return [one["name"] for one in entries if one["use"] == use]


def test_every_entry_is_used_harmless_or_unsafe_and_three_commands_print_the_same_table(
    theirs: Path, home: Path
) -> None:
    dry = hermes("import", "hermes", theirs, "--dry-run")
    assert dry.returncode == 0 and not home.exists(), dry.stderr
    assert hermes("import", "hermes", theirs, "--yes", "--take", "all").returncode == 0
    checked, examined = hermes("config", "check"), hermes("doctor")
    assert table_of(dry.stdout) == table_of(checked.stdout) == table_of(examined.stdout)
    assert (checked.returncode, examined.returncode) == (1, 1)
    entries = json.loads(hermes("config", "check", "--json").stdout)["entries"]
    assert entries == json.loads(hermes("doctor", "--json").stdout)["entries"]
    assert entries == json.loads(hermes("import", "hermes", theirs, "--dry-run", "--json").stdout)["entries"]
    assert (names(entries, "unsafe"), names(entries, "harmless"), names(entries, "used")) == (UNSAFE, HARMLESS, USED)
    assert "hunter" not in dry.stdout + checked.stdout + examined.stdout, "a secret was printed"
    for row in entries:
        if row["use"] != "used":
            verdict = re.escape(home_inventory.VERDICTS[row["use"]])
            assert re.search(rf"^{re.escape(row['name'])} +{verdict} +\S", checked.stdout, re.MULTILINE), row


def test_nothing_starts_until_each_unsafe_entry_is_acknowledged_by_name(theirs: Path, home: Path) -> None:
    assert hermes("import", "hermes", theirs, "--yes", "--take", "all").returncode == 0
    for command in (("-q", "hello"), ("-z", "hello"), ("--plain",), ("gateway", "run"), ("gateway", "start")):
        refused = hermes(*command)
        assert refused.returncode == 1, command
        assert "agent.system_prompt is not used and unsafe to ignore" in refused.stderr
        assert "and 6 more" in refused.stderr and refused.stderr.count("\n") == 1

    wrong = hermes("config", "acknowledge", "terminal.backend", "jobs/Weekly report")
    assert wrong.returncode == 2 and "'jobs/Weekly report' is not an entry that is unsafe" in wrong.stderr
    assert "acknowledged" not in (home / "config.yaml").read_text(), "all or nothing"

    all_but_one = [name for name in UNSAFE if name != "hooks.pre_tool_call"]
    done = hermes("config", "acknowledge", *all_but_one)
    assert "1 left: hermes config acknowledge hooks.pre_tool_call" in done.stdout
    refused = hermes("-q", "hello")
    assert refused.returncode == 1
    assert "hooks.pre_tool_call is not used and unsafe to ignore: it can block a tool call" in refused.stderr

    printed = next(line for line in hermes("config", "check").stdout.splitlines() if "config acknowledge" in line)
    assert hermes(*shlex.split(printed)[1:]).returncode == 0, "the command that is printed works as it stands"
    assert hermes("config", "check").returncode == 0
    answered = hermes("-q", "hello")
    assert answered.returncode == 0 and answered.stdout.strip(), answered.stderr

    text = (home / "config.yaml").read_text()
    assert "# of a person who has used hermes-agent for a while" in text, "comments stay"
    examined = hermes("doctor").stdout
    assert f"not used, and acknowledged in config.yaml: {', '.join(UNSAFE)}" in examined
    assert "not used and unsafe to ignore, acknowledged" in table_of(examined)


def test_a_new_unsafe_entry_stops_the_next_start(theirs: Path, home: Path) -> None:
    assert hermes("import", "hermes", theirs, "--yes", "--take", "all").returncode == 0
    assert hermes("config", "acknowledge", *UNSAFE).returncode == 0
    jobs = json.loads((home / "cron" / "jobs.json").read_text(encoding="utf-8-sig"))
    jobs["jobs"].append({"id": "d1", "name": "Backup", "enabled": True, "schedule_display": "every 1d"})
    (home / "cron" / "jobs.json").write_text(json.dumps(jobs))
    refused = hermes("-q", "hello")
    assert refused.returncode == 1
    assert "jobs/Backup is not used and unsafe to ignore: it does not run: it has no prompt" in refused.stderr


def test_jobs_that_were_taken_run_here_and_the_others_are_named(theirs: Path, home: Path) -> None:
    file = theirs / "cron" / "jobs.json"
    kept = json.loads(file.read_text(encoding="utf-8-sig"))
    origin = {"platform": "telegram", "chat_id": "42", "chat_name": "Ada", "thread_id": None, "user_id": "42"}
    more = {"prompt": "look", "enabled": True, "schedule": {"kind": "cron", "expr": "0 9 * * 1-5"}}
    kept["jobs"] += [
        {**more, "id": "d1b2c3d4e5f6", "name": "News", "origin": origin, "model": "some/model", "deliver": "origin"},
        {**more, "id": "e1b2c3d4e5f6", "name": "Backup", "script": "backup.sh"},
        {**more, "id": "f1b2c3d4e5f6", "name": "Odd", "schedule": {"kind": "cron", "expr": "61 * * * *"}},
    ]
    file.write_text(json.dumps(kept))
    done = hermes("import", "hermes", theirs, "--yes", "--take", "all")
    assert "Jobs: Taken over: Morning briefing, b1b2c3d4e5f6, News." in done.stdout, done.stdout + done.stderr
    assert "Jobs: Not taken: Backup: its script runs outside the sandbox there" in done.stdout
    assert "Not taken: Odd: its schedule: the cron expression '61 * * * *' cannot be read: bad minute." in done.stdout
    found = {one["id"]: one for one in json.loads(hermes("cron", "list", "--json").stdout)["jobs"]}
    assert {one["name"] for one in found.values()} == {"Morning briefing", "b1b2c3d4e5f6", "News"}
    news = found["d1b2c3d4e5f6"]
    assert (news["goes_to"], news["expression"], news["task"]["model"]) == ("telegram:42", "0 9 * * 1-5", "some/model")
    assert found["b1b2c3d4e5f6"]["schedule"] == "every 30 minutes"
    entries = {one["name"]: one for one in json.loads(hermes("config", "check", "--json").stdout)["entries"]}
    assert (entries["jobs/News"]["use"], entries["jobs/Backup"]["use"]) == ("used", "unsafe")
    again = hermes("cron", "import", "--yes")
    assert "Taken over" not in again.stdout and "Not taken: Backup" in again.stdout


def test_a_home_that_is_converted_in_place_is_refused_in_the_same_way(theirs: Path, home: Path) -> None:
    shutil.copytree(theirs, home)
    upgraded = hermes("state", "upgrade", "--yes")
    assert upgraded.returncode == 0
    assert (
        f"Hermes does not use {len(UNSAFE) + 3} entries that must be acknowledged before it starts" in upgraded.stdout
    )
    entries = json.loads(hermes("config", "check", "--json").stdout)["entries"]
    more = ["hooks/gatekeeper", "jobs/Morning briefing", "jobs/b1b2c3d4e5f6"]
    assert sorted(names(entries, "unsafe"), key=str) == sorted([*UNSAFE, *more]), "its hooks are off, no job is taken"
    assert hermes("cron", "import", "--yes").returncode == 0
    entries = json.loads(hermes("config", "check", "--json").stdout)["entries"]
    assert sorted(names(entries, "unsafe"), key=str) == sorted([*UNSAFE, "hooks/gatekeeper"])
    assert hermes("gateway", "run").returncode == 1
