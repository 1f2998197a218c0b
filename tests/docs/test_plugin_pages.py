"""The plug-ins in the contributors' pages do what the pages say, cut out of them and installed as they say."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway.config import Platform, PlatformConfig
from gateway.platforms import registry
from gateway.platforms.base import Outgoing
from hermes_agent import AIAgent
from hermes_agent.execution import bubblewrap, executor
from hermes_agent.execution.base import ExecutorUnavailable
from hermes_agent.models import keys, prices, provider_table, providers
from hermes_cli import plugins
from hermes_config import config, redaction
from hermes_state.session_db import SessionDB
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, call, fail, say

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[2] / "docs" / "contributors"
_BLOCK = re.compile(r"```\w+\n# ~/\.hermes/plugins/(?P<path>[\w./]+)\n(?P<text>.*?)```", re.DOTALL)
_SECONDS = 60.0


def install(page: str, home: Path) -> dict[str, str]:
    """Write the files that a page shows below `~/.hermes/plugins/`; their texts by path."""
    found = {one["path"]: one["text"] for one in _BLOCK.finditer((PAGES / page).read_text(encoding="utf-8"))}
    for path, text in found.items():
        file = home / "plugins" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return found


@pytest.fixture
def plugged(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as made:
        yield made


@pytest.mark.parametrize("page", ["platforms.md", "tool-sources.md", "providers.md", "executors.md"])
def test_each_page_holds_a_whole_plug_in_of_under_150_lines(page: str, tmp_path: Path) -> None:
    files = install(page, tmp_path)
    assert len(files) == 2, "a manifest and a module"
    assert sum(text.count("\n") for text in files.values()) < 150


# -- hooks ---------------------------------------------------------------------------------------------------------

RECORDER = """
from hermes_cli.plugins import HOOKS
told = []
def register(ctx):
    def listening_to(name):
        return lambda **facts: told.append((name, set(facts)))
    for name in HOOKS:
        ctx.register_hook(name, listening_to(name))
"""


def test_every_hook_of_the_page_fires_with_exactly_the_keywords_of_the_page(plugged: PluginHome, db: SessionDB) -> None:
    page = (PAGES / "plugins.md").read_text(encoding="utf-8")
    table = page.partition("The keywords they get")[2].partition("`event` is a")[0]
    rows = (re.findall(r"`(\w+)`", line) for line in table.splitlines() if line.startswith("| `"))
    documented = {hook: set(keywords) for hook, *keywords in rows}
    assert set(documented) == set(plugins.HOOKS)
    plugged.add("recorder", RECORDER)

    async def go() -> None:
        delegated = call("delegate_task", {"tasks": [{"goal": "look"}]})
        steps = (
            say(calls=[call("terminal", {"command": "rm -rf old"}), delegated]), say("Seen."), say("Done."),
            fail(400, "not like that"),
        )  # fmt: skip
        with ScriptedModel(*steps) as model:
            gateway = PretendGateway(db, plugged.home, model, plugins={"enabled": ["recorder"]})
            plugins.discover_plugins(force=True)
            async with gateway as here:
                await here.chat.say("tidy up")
                asked = await here.until(lambda: [one for one in here.chat.messages if one.buttons])
                once = next(one for row in asked[0].buttons for one in row if one.answer.choice == "once")
                await here.chat.press(once)
                await here.until(lambda: "Done." in here.chat.chat(), seconds=30)
                await here.chat.say("once more")
                await here.quiet()
                await here.chat.say("/new")
                await here.quiet()

    asyncio.run(go())
    told: list[tuple[str, set[str]]] = sys.modules["hermes_plugins.recorder"].told
    assert {name for name, _ in told} == set(documented), "each of them fired"
    for name, keywords in told:
        assert keywords == documented[name] | {"telemetry_schema_version"}, name


def test_the_test_of_the_page_runs_twice(tmp_path: Path) -> None:
    page = (PAGES / "plugins.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page.partition("## Testing one")[2], re.DOTALL)
    (tmp_path / "test_tally.py").write_text(code, encoding="utf-8")
    shutil.copytree(PAGES.parent / "examples" / "plugin" / "tally", tmp_path / "tally")
    for _ in range(2):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tally.py"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout


# -- a platform ----------------------------------------------------------------------------------------------------


class Process:
    """`hermes` on a home of its own, as a person runs it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        self.environ = {**kept, "HERMES_HOME": str(home), "HERMES_DATABASE_URL": ""}

    def hermes(self, *words: str) -> str:
        command = [sys.executable, "-m", "hermes_cli", *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=self.environ, check=False)
        assert ran.returncode == 0, f"hermes {' '.join(words)}: {ran.stderr}{ran.stdout}"
        return ran.stdout

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.home / "printed.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "hermes_cli", "gateway", "run"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.environ,
            )  # fmt: skip
        try:
            yield child
        finally:
            child.kill()
            child.wait(_SECONDS)

    def until(self, seen: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if found := seen():
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what} did not happen: {(self.home / 'printed.log').read_text()[-3000:]}")


def test_the_platform_connects_in_a_fresh_home_answers_and_survives_a_kill(tmp_path: Path) -> None:
    home, letters = tmp_path / "home", tmp_path / "letters"
    home.mkdir(mode=0o700)
    letters.mkdir()
    install("platforms.md", home)
    person = Process(home)
    person.hermes("plugins", "enable", "maildrop")
    person.hermes("config", "set", "model", "demo")
    person.hermes("config", "set", "demo.tokens_per_second", "0")
    person.hermes("config", "set", "platforms.maildrop.extra.folder", str(letters))
    shown = person.hermes("gateway", "setup", "maildrop", "--owner", "ada")
    assert f"letters are read from {letters}" in shown and "Maildrop ada is the owner" in shown

    def write(number: int, text: str) -> None:
        with (letters / "letters.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": number, "from": "ada", "text": text}) + "\n")

    def answers() -> list[dict[str, str]]:
        file = letters / "answers.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    write(1, "/status")
    with person.gateway() as running:
        person.until(answers, "the first answer")
        assert answers()[0]["to"] == "ada" and "maildrop" in answers()[0]["text"]
        write(2, "/status")
        person.until(lambda: len(answers()) == 2, "the second answer")
        running.send_signal(signal.SIGKILL)
    with (letters / "letters.jsonl").open("a", encoding="utf-8") as file:
        file.write("no letter at all\n")
    write(3, "hello")
    with person.gateway():
        person.until(lambda: len(answers()) == 3, "the answer to what came while it was away")
        assert "maildrop" in person.hermes("gateway", "status")
        assert f"letters are read from {letters}" in person.hermes("doctor", "--online")
    keys = [one["key"] for one in answers()]
    assert len(set(keys)) == len(keys) == 3, "nothing is lost, nothing is repeated"
    db = SessionDB(home / "state.db", read_only=True)
    try:
        position = db.cursors.get("maildrop")
        rows = db.inbox.list()
        (session,) = db.list_sessions_rich(source="maildrop")
        prompt = db.get_session(session["id"])["system_prompt"]
    finally:
        db.close()
    assert position is not None and int(position.value) == (letters / "letters.jsonl").stat().st_size
    assert sorted(row.message_id for row in rows) == ["1", "2", "3"]
    assert "You are answering letters." in prompt


def test_a_line_that_a_crash_cut_short_is_no_answer_and_spoils_none(plugged: PluginHome, tmp_path: Path) -> None:
    install("platforms.md", plugged.home)
    plugged.load("maildrop")
    made = registry.make(Platform("maildrop"), PlatformConfig(enabled=True, extra={"folder": str(tmp_path)}))
    (tmp_path / "answers.jsonl").write_text('{"to": "ada", "key": "k0"}\n{"to": "ada", "key": "k1", "te')
    one, two = Outgoing(text="grüße", key="k1"), Outgoing(text="more", key="k2")

    async def go() -> None:
        assert (await made.find_sent("ada", one, since=0)).not_sent
        assert (await made.send("ada", one)).success and (await made.send("ada", two)).success
        for message in (one, two):
            assert (await made.find_sent("ada", message, since=0)).success

    asyncio.run(go())
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines[2:]] == ["grüße", "more"]


# -- a tool source -------------------------------------------------------------------------------------------------


def test_tools_of_a_source_appear_and_disappear_and_move_no_prefix(
    plugged: PluginHome, db: SessionDB, tmp_path: Path
) -> None:
    install("tool-sources.md", plugged.home)
    tables = tmp_path / "tables"
    tables.mkdir()
    config.set_value("plugins.entries.tables.folder", str(tables))
    config.set_value("auto_title", False)
    plugged.load("tables")
    asked = {"where": [{"column": "city", "is": "Kyoto"}]}
    wrong = {"where": [{"column": "town", "is": "Kyoto"}]}
    search = say(calls=[call("find_tool", {"query": "a table about trips"})])
    used = [call("use_tool", {"name": "find_in_trips", "arguments": given}) for given in (wrong, asked)]
    with ScriptedModel(
        search, say("Nothing yet."), search, say(calls=used), say("In May."), search, say("Gone again."),
    ) as model:  # fmt: skip
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), workdir=tmp_path, yolo=True)
        asyncio.run(agent.arun_conversation("When was Kyoto?"))
        (tables / "trips.csv").write_text("city,month\nKyoto,May\nLisbon,June\n")
        asyncio.run(agent.arun_conversation("And now?"))
        (tables / "trips.csv").unlink()
        asyncio.run(agent.arun_conversation("Once more."))
        messages = json.loads(model.requests[-1].body)["messages"]
    before, found, corrected, rows, gone = [one["content"] for one in messages if one["role"] == "tool"]
    assert "find_in_trips: Find rows in the table trips. Its columns: city, month. [plug-in tables]" in found
    assert "find_in_trips" not in before + gone
    assert "must be one of city, month" in corrected and '"enum":["city","month"]' in corrected
    assert rows == '1 rows of trips.csv:\n[{"city": "Kyoto", "month": "May"}]'
    conversation = db.get_conversation_root(agent.session_id)
    reasons = [epoch.reason for epoch in db.prefixes.epochs(conversation)]
    assert reasons == ["first use"]
    assert db.prefixes.break_count(conversation) == 0


# -- a provider ----------------------------------------------------------------------------------------------------


@contextmanager
def token_server(tokens: list[tuple[str, float]]) -> Iterator[tuple[str, list[str]]]:
    """Gives out these tokens, one a request; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
            key, seconds = tokens[len(asked) - 1]
            body = json.dumps({"access_token": key, "expires_in": seconds}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        server.server_close()


def test_the_provider_refreshes_its_token(
    plugged: PluginHome, db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("providers.md", plugged.home)
    plugged.load("acme")
    keys._kept.clear()
    config.set_value("auto_title", False)
    config.set_value("model", {"provider": "acme", "default": "acme-large"})
    tokens = [("token-that-was-revoked", 3_600), ("token-for-an-hour", 3_600)]
    model = ScriptedModel(
        say("One."), say("Two."), model="acme-large", api_key="token-for-an-hour", allow_rejections=True
    )
    with model, model.served() as server, token_server(tokens) as (address, asked):
        monkeypatch.setenv("ACME_TOKEN_URL", address)
        monkeypatch.setenv("ACME_CLIENT_SECRET", "hush-hush-secret")
        monkeypatch.setenv("ACME_BASE_URL", f"{server.origin}/v1")
        endpoint = providers.primary(config.load())
        assert (endpoint.provider, endpoint.api_key) == ("acme", "")
        agent = AIAgent(session_db=db, config=config.load(), workdir=tmp_path)
        for wanted in ("One.", "Two."):
            result = asyncio.run(agent.arun_conversation("Say a number."))
            assert result["final_response"] == wanted
        assert len(asked) == 2, "once at the start, once when it was refused; then it is kept"
        assert "client_secret=hush-hush-secret" in asked[0]
    row = provider_table.table()["acme"]
    assert provider_table.context_length(row, "acme-large") == 256_000
    price = prices.price_for(config.load(), endpoint)
    assert price is not None and (price.input, price.output) == (2.0, 8.0)
    assert "token-for-an-hour" not in redaction.redacted("key token-for-an-hour")


# -- an executor ---------------------------------------------------------------------------------------------------


@pytest.mark.needs_bubblewrap
def test_the_executor_runs_commands_only_when_the_owner_names_it(
    plugged: PluginHome, db: SessionDB, tmp_path: Path
) -> None:
    programs = [one for one in bubblewrap.programs() if bubblewrap.probe(one) is not None]
    install("executors.md", plugged.home)
    workspace = tmp_path / "work"
    workspace.mkdir()
    config.set_value("auto_title", False)
    config.set_value("plugins.entries.jail.program", programs[0])
    plugged.load("jail")
    assert executor.sandbox_of(config.load()).runner is None, "it is registered, and nobody named it"
    config.set_value("executor", "plugin:jail")
    assert executor.sandbox_of(config.load()).said == "a jail of bubblewrap"
    outside = Path("/opt/hermes-was-here.txt")
    commands = (
        "echo from $HOME > kept.txt; cat kept.txt",
        f"echo no > {outside}",
        "sleep 30",
        "curl http://example.com",
    )
    with ScriptedModel(
        *(say(calls=[call("terminal", {"command": one, "timeout": 1})]) for one in commands), say("Done.")
    ) as model:  # fmt: skip
        agent = AIAgent(session_db=db, config=config.load(), endpoint=model.endpoint(), workdir=workspace)
        began = time.monotonic()
        asyncio.run(agent.arun_conversation("Work."))
        messages = json.loads(model.requests[-1].body)["messages"]
    results = [one["content"] for one in messages if one["role"] == "tool"]
    assert results[0] == "from /tmp\n[exit code 0]" and (workspace / "kept.txt").read_text() == "from /tmp\n"
    assert "was not run" in results[1] and not outside.exists(), "the same gate: what leaves the workspace asks"
    assert "stopped after 1 s" in results[2] and time.monotonic() - began < 20
    assert "was not run" in results[3], "the network asks, too"
    assert "Commands run in: a jail of bubblewrap" in json.loads(model.requests[0].body)["messages"][0]["content"]


def test_an_executor_that_is_named_and_not_there_is_refused(plugged: PluginHome) -> None:
    config.set_value("executor", "plugin:nowhere")
    with pytest.raises(ExecutorUnavailable, match="no loaded plug-in provides it"):
        executor.sandbox_of(config.load())
