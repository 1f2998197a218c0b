"""`hermes send`: stored at once, delivered by the gateway; the exit code tells."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import status
from gateway.access.policy import PolicyKeeper
from gateway.config import GatewayConfig
from gateway.hooks import HookRegistry
from gateway.metrics import Metrics
from gateway.outbound.deliverer import Deliverer
from gateway.platforms.base import SendResult
from gateway.services import Services
from gateway.session import SessionStore
from hermes_agent import process_identity
from hermes_config import config
from hermes_state.session_db import SessionDB
from hermes_testing.memory_platform import PretendAdapter

pytestmark = pytest.mark.usefixtures("named_store")
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def telegram(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(
        "platforms:\n  telegram:\n    enabled: true\n    token: '1:x'\n"
        "    home_channel: {chat_id: '42', thread_id: '7'}\n"
    )


@contextmanager
def gateway(db: SessionDB, home: Path, adapter: PretendAdapter) -> Iterator[None]:
    """A deliverer in a thread of its own, with the home's lock: what a gateway is to `hermes send`."""
    settings = GatewayConfig()
    services = Services(
        db=db, config=config.load(), settings=settings, store=SessionStore(home / "sessions", settings, db=db),
        policy=PolicyKeeper(db, home), hooks=HookRegistry(home), metrics=Metrics(),
        holder=process_identity.new_holder(),
    )  # fmt: skip
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Deliverer:
        deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.05)
        await deliverer.start()
        return deliverer

    lock = status.acquire_gateway_lock(home)
    deliverer = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(deliverer.drain(5), loop).result(10)
        lock.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_without_a_gateway_it_is_stored_and_says_so(run: Run, db: SessionDB) -> None:
    said = run("send", "telegram:99", "hello")
    assert said.code == 3 and "no gateway is running" in said.err and "hermes gateway start" in said.err
    (item,) = db.outbox.list()
    assert (item.platform, item.chat_id, item.state, item.payload["text"]) == ("telegram", "99", "pending", "hello")
    stored = run("send", "telegram:99", "again", "--wait", "0")
    assert stored.code == 0 and "Stored as delivery" in stored.out


def test_a_running_gateway_delivers_it_while_the_command_waits(run: Run, db: SessionDB, home: Path) -> None:
    adapter = PretendAdapter()
    with gateway(db, home, adapter):
        assert run("send", "telegram", "to my home").out == "Delivered to telegram:42.\n"
        told = run("send", "telegram:-100:5", "to a topic", "--json").data
        assert told["state"] == "sent" and told["gateway"] is True and told["message_ids"] == ["2"]
    places = [(m.chat_id, m.thread_id, m.text) for m in adapter.messages]
    assert places == [("42", "7", "to my home"), ("-100", "5", "to a topic")]


def test_what_cannot_be_delivered_is_an_error(run: Run, db: SessionDB, home: Path) -> None:
    adapter = PretendAdapter()
    adapter.script = [
        SendResult(success=False, error="chat not found", error_kind="not_found", not_sent=True),
        SendResult(success=False, error="timed out", error_kind="transient"),
    ]
    with gateway(db, home, adapter):
        failed = run("send", "telegram:5", "hello")
        in_doubt = run("send", "telegram:6", "hello", "--wait", "2")
    assert failed.code == 1 and "failed: chat not found (telegram:5)" in failed.err
    assert in_doubt.code == 3 and "still pending: timed out" in in_doubt.err, "it is sent again by itself"
    assert len(adapter.messages) == 1, "nothing was said about it in the chat: the person is here"


def test_the_text_may_come_from_a_pipe(run: Run, db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a whole report\nof two lines\n"))
    run("send", "telegram:1", "-", "--wait", "0")
    assert db.outbox.list()[0].payload["text"] == "a whole report\nof two lines\n"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:1", "no platform is called 'nowhere'. These are set up: telegram."),
        ("discord:1", "discord is not set up on this home"),
        ("slack", "slack has no home channel"),
        ("telegram:#general", "is a name; give the id of the chat"),
        ("telegram:1:2:3", "is not a chat"),
        ("telegram::7", "is not a chat"),
    ],
)
def test_a_target_that_is_none_is_refused_in_one_line(run: Run, target: str, words: str) -> None:
    refused = run("send", target, "hello")
    assert refused.code == 2 and words in refused.err and refused.err.count("\n") == 1


def test_an_empty_message_is_refused(run: Run) -> None:
    assert run("send", "telegram:1", "  ").err.startswith("hermes: the message is empty")


def test_matrix_rooms_keep_their_colon(home: Path) -> None:
    from gateway.config import load_gateway_config
    from hermes_cli.operate.messages import find_target

    (home / "config.yaml").write_text("platforms:\n  matrix:\n    enabled: true\n    token: x\n")
    settings = load_gateway_config(config.load())
    assert find_target("matrix:!room:example.org", settings) == ("matrix", "!room:example.org", None)
    assert find_target("matrix:!room:example.org:$event", settings) == ("matrix", "!room:example.org", "$event")


def test_the_options_of_hermes_agent_work(
    run: Run, db: SessionDB, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.txt"
    report.write_text("all is well\n")
    adapter = PretendAdapter()
    with gateway(db, home, adapter):
        assert run("send", "-t", "telegram:9", "hello").out == "Delivered to telegram:9.\n"
        assert run("send", "-t", "telegram:9", "-s", "Report", "-f", str(report), "-q").out == ""
        monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
        assert run("send", "--target", "telegram:9", "--json").data["state"] == "sent"
    assert [m.text for m in adapter.messages] == ["hello", "Report\n\nall is well\n", "from a pipe"]
    assert run("send", "-l").out.splitlines()[1].split() == ["telegram", "chat", "42"]
    assert run("send", "--list", "--json").data == {"telegram": "42"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "there is no TARGET"),
        (("telegram", "a", "b"), "Write it in quotes"),
        (("-t", "telegram", "a", "-f", "b"), "given twice"),
        (("-t", "telegram", "-f", "/nowhere"), "the file cannot be read"),
    ],
)
def test_a_message_that_is_not_clear_is_refused(run: Run, arguments: tuple[str, ...], says: str) -> None:
    said = run("send", *arguments)
    assert said.code == 2 and says in said.err
