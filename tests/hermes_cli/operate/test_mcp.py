"""`hermes mcp`: a server is added with what it needs, shown, logged in at, removed, and taken from another home."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from tests.hermes_agent.mcp.test_connections import PYTHON, SMALL, small
from tests.hermes_agent.mcp.test_http import HttpServer
from tests.hermes_cli.maintenance.test_import_home import at_terminal, hermes
from tests.support.old_homes import OldHome

pytestmark = pytest.mark.slow

ADD = ("mcp", "add", "small", "--command", PYTHON)
READ = f"read:{SMALL.parent}"


def settings(home: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((home / "config.yaml").read_text())["mcp_servers"]
    return found


def test_a_server_is_added_shown_and_removed(home: Path) -> None:
    added = hermes(*ADD, "--needs", READ, "--args", f"-S {SMALL}")
    assert added.returncode == 0, added.stderr
    assert f"confined; beyond its own folder it has {READ}." in added.stdout
    assert "small: connected (protocol 2025-11-25), 6 tools." in added.stdout
    assert settings(home) == {"small": {"command": PYTHON, "args": ["-S", str(SMALL)], "needs": [READ]}}
    assert "already" in hermes(*ADD).stderr
    row = json.loads(hermes("mcp", "list", "--json").stdout)[0]
    assert (row["state"], row["tools"], row["needs"]) == ("off", 6, [READ])
    tested = json.loads(hermes("mcp", "test", "small", "--json").stdout)
    assert tested["state"] == "connected"
    assert "only_in_2" in tested["tools"]
    assert "small: off, 6 tools" in hermes("status").stdout
    assert "small: off, 6 tools" in hermes("doctor").stdout
    found = {row["name"]: row["toolset"] for row in json.loads(hermes("tools", "--json").stdout)}
    assert found["mcp__small__only_in_2"] == "mcp-small"
    assert "Did you mean small?" in hermes("mcp", "test", "smal").stderr
    assert hermes("mcp", "remove", "small", "--yes").returncode == 0
    assert "There is no MCP server" in hermes("mcp", "list").stdout
    assert not (home / "mcp" / "files" / "small").exists()


def test_the_next_server_of_a_name_does_not_inherit_permissions(home: Path) -> None:
    assert hermes(*ADD, "--no-test").returncode == 0
    for tool in ("mcp__small__exit", "mcp__smaller__exit"):
        assert hermes("approvals", "add", "--tool", tool).returncode == 0
    assert "1 permission for its tools ended." in hermes("mcp", "remove", "small", "--yes").stdout
    left = hermes("approvals", "list").stdout
    assert "mcp__smaller__exit" in left and "mcp__small__exit" not in left


def test_a_need_is_confirmed_by_name_or_not_given(home: Path) -> None:
    unsaid = hermes(*ADD, "--no-test", "--args", f"-S {SMALL}")
    assert f"It probably needs {READ}" in unsaid.stderr
    assert "needs" not in settings(home)["small"]  # type: ignore[operator]
    assert hermes("mcp", "test", "small").returncode == 1
    assert hermes("mcp", "remove", "small", "--yes").returncode == 0
    code, said = at_terminal("yes\n", *ADD, "--no-test", "--args", f"-S {SMALL}")
    assert code == 0, said
    assert f"Let it have {READ}?" in said
    assert settings(home)["small"]["needs"] == [READ]  # type: ignore[index]
    assert hermes("mcp", "remove", "small", "--yes").returncode == 0
    tried = hermes(*ADD, "--args", "-S", str(SMALL), "--needs", READ)
    assert "The server gets --needs, because it is after --args" in tried.stderr
    assert f"It does not have {READ}. If it needs that:" in tried.stdout


def test_wrong_settings_are_refused_and_nothing_is_saved(home: Path) -> None:
    for words, why in (
        (("odd",), "either a command or a url"),
        (("odd", "--command", "x", "--url", "https://y"), "either a command or a url"),
        (("o/d", "--command", "x"), "letters, digits"),
        (("odd", "--command", "x", "--needs", "nework"), "the need 'nework' is not known"),
        (("odd", "--command", "x", "--env", "KEY"), "is not NAME=VALUE"),
    ):
        result = hermes("mcp", "add", *words)
        assert result.returncode != 0
        assert why in result.stderr, result.stderr
    assert not (home / "config.yaml").exists()
    noted = hermes("mcp", "add", "web", "--url", "https://x.example/mcp", "--header", "X-Key=abc", "--no-test")
    assert "keep it in .env" in noted.stderr


def test_a_server_that_cannot_start_says_why_everywhere(home: Path) -> None:
    added = hermes("mcp", "add", "odd", "--command", "no-such-program")
    assert added.returncode == 1
    assert added.stdout.startswith("Trying odd")
    assert "odd does not work: there is no program no-such-program" in added.stdout
    assert json.loads(hermes("mcp", "list", "--json").stdout)[0]["reason"] == "there is no program no-such-program"
    assert re.search(r"✗ mcp +odd: there is no program", hermes("doctor").stdout)
    assert "hermes mcp remove odd --yes" in hermes("mcp", "add", "odd", "--command", "x").stderr


def test_why_it_failed_is_not_said_of_other_settings(home: Path) -> None:
    assert "small does not work: its program ended" in hermes(*ADD, "--args", f"-S {SMALL}").stdout
    assert "its program ended" in hermes("mcp", "list").stdout
    assert hermes("config", "set", "mcp_servers.small.needs", json.dumps([READ])).returncode == 0
    assert "it connects when one of its tools is called" in hermes("mcp", "list").stdout


def test_a_name_that_is_a_path_removes_nothing(home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    for name in ("../..", "..", "a/../../.."):
        (home / "mcp" / "files" / "a").mkdir(parents=True, exist_ok=True)
        (home / "config.yaml").write_text(yaml.safe_dump({"mcp_servers": {name: {"command": "true"}}}))
        refused = hermes("mcp", "remove", name, "--yes")
        assert refused.returncode != 0
        assert "letters, digits" in refused.stderr
        assert settings(home) == {name: {"command": "true"}}
        assert (home / "mcp" / "files" / "a").is_dir()


def test_a_login_on_a_machine_without_a_browser(home: Path) -> None:
    server = HttpServer("mcp_oauth_server.py")
    try:
        added = hermes("mcp", "add", "web", "--url", server.url, "--auth", "oauth")
        assert "web: needs login: nobody has logged in yet. hermes mcp login web logs in." in added.stdout
        command = [sys.executable, "-m", "hermes_cli", "mcp", "login", "web", "--no-browser"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env={**os.environ}, **pipes) as child:  # type: ignore[call-overload]
            url = ""
            while not url.startswith("http"):
                url = child.stdout.readline().strip()
            sent_to = where_it_leads(url)
            assert sent_to.startswith("http://127.0.0.1:")
            out, errors = child.communicate(f"{sent_to}\n", timeout=60)
        assert child.returncode == 0, errors
        assert "You are logged in." in out
        assert "web: connected (protocol 2026-07-28), 1 tool." in out
        assert json.loads(hermes("mcp", "test", "web", "--json").stdout)["tools"] == ["secret"]
        assert hermes("mcp", "remove", "web", "--yes").stdout == "Removed web and its login.\n"
        assert not list((home / "mcp" / "tokens").iterdir())
    finally:
        server.stop()


def where_it_leads(url: str) -> str:
    """The address to which a browser on another machine would be sent, where nobody listens."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        urllib.request.build_opener(Stay).open(url, timeout=10)
    except urllib.error.HTTPError as answer:
        return str(answer.headers["Location"])
    raise AssertionError("it was not redirected")


def test_a_server_of_hermes_agent_is_taken_confirmed_and_works(home: Path, tmp_path: Path) -> None:
    old = OldHome(tmp_path / "theirs")
    old.conversation("trip", 1)
    theirs = old.close()
    theirs_settings = {"mcp_servers": {"small": {**small(), "needs": None}, "npx": {"command": "npx", "args": ["x"]}}}
    (theirs / "config.yaml").write_text(yaml.safe_dump(theirs_settings))
    left = hermes("import", "hermes", theirs, "--yes")
    assert "small (" in left.stdout
    assert not (home / "config.yaml").exists()
    taken = hermes("import", "hermes", theirs, "--yes", "--take", "servers")
    assert taken.returncode == 0, taken.stderr
    assert re.search(r"MCP server: npx runs confined and probably needs network: hermes config set", taken.stdout)
    advice = re.search(r"MCP server: small .*: hermes (config set \S+) '(.*)'", taken.stdout)
    assert advice is not None, taken.stdout
    assert hermes("mcp", "test", "small").returncode == 1, "nothing is opened by itself"
    assert hermes(*advice[1].split(), advice[2]).returncode == 0
    assert "small: connected" in hermes("mcp", "test", "small").stdout
