"""The line chat at a conversation that a server holds, as a person meets it: a real terminal, the real protocol."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from hermes_cli.tui.rpc_client import RpcClient

pytestmark = pytest.mark.slow

SERVER = """
import json, sys
def tell(kind, **payload):
    put({"method": "event", "params": {"type": kind, "session_id": "s", "payload": payload}})
def put(frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
tell("gateway.ready", skin="default", request_bytes=65536)
for line in sys.stdin:
    asked = json.loads(line)
    put({"id": asked["id"], "result": {"session_id": "s", "info": {}, "status": "idle"}})
    if asked["method"] == "prompt.submit":
        tell("message.start")
        tell("clarify.request", request_id="q", question="Tea or coffee?", choices=[])
        ENDING
"""
LAPSES = """
        tell("clarify.expire", request_id="q")
        tell("message.complete", text="Tea, then.", usage={}, status="complete")
"""
CHAT = """
import sys
from hermes_cli.chat.repl import LineChat
from hermes_cli.tui.rpc_client import ChatOptions, RpcClient
chat = LineChat(ChatOptions(session_id="stored"), opening=[])
chat._client = RpcClient((sys.executable, sys.argv[1]))
sys.exit(chat.talk())
"""


@pytest.mark.parametrize(
    ("ending", "shown"),
    [pytest.param(LAPSES, "Tea, then.", id="lapsed"), pytest.param("exit()", "a new one continues here", id="lost")],
)
def test_a_question_that_nobody_waits_for_any_more_gives_the_prompt_back(
    tmp_path: Path, ending: str, shown: str
) -> None:
    (tmp_path / "server.py").write_text(SERVER.replace("ENDING", ending), encoding="utf-8")
    with Terminal([sys.executable, "-c", CHAT, str(tmp_path / "server.py")], cwd=tmp_path) as terminal:
        terminal.ready()
        terminal.type("what shall I drink?")
        terminal.see("Tea or coffee?")
        terminal.see(shown)
        terminal.ready()
        terminal.press("ctrl-d")
        assert terminal.end() == 0


def test_servers_that_were_lost_long_ago_do_not_count() -> None:
    client = RpcClient()
    client.restarts = [time.monotonic() - 61] * 3
    assert [client.may_restart() for _ in range(4)] == [True, True, True, False]
