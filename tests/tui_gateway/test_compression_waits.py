"""A prompt that comes while the conversation is compressed is stored, waits for that, and is answered."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.tui_gateway.client import RpcFailed, StdioClient

from hermes_state import SessionDB
from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, always, say

LONG = "A long remark about the harbour, the lamp and the ledger. " * 20


def is_summary(request: ScriptedRequest) -> bool:
    return b"You write summaries" in request.body


def test_a_prompt_during_a_compression_waits_for_it(home: Path) -> None:
    hold = Hold()
    summary = say("## Goal\nThe person talks about lamps.", when=is_summary, hold=hold)
    said = [{"role": ("user", "assistant")[at % 2], "content": f"{at}: {LONG}"} for at in range(40)]
    with ScriptedModel(summary, always(say("Answered."))).served() as server:
        home.mkdir(mode=0o700, exist_ok=True)
        settings = {"model": server.model.settings(server.origin), "auto_title": False}
        (home / "config.yaml").write_text(yaml.safe_dump(settings))
        with StdioClient(home) as client:
            made = client.call("session.create", messages=said)
            sid = made["session_id"]
            client.say(sid, "hello")
            compression = client.ask("session.compress", session_id=sid)
            asyncio.run(hold.reached(20))
            assert client.call("prompt.submit", session_id=sid, text="and now?")["status"] == "queued"
            with closing(SessionDB(home / "state.db")) as db:
                assert db.inbox.list()[0].state == "queued", "it is stored, whatever becomes of this process"
            with pytest.raises(RpcFailed, match=r"4009: .*being compressed"):
                client.call("prompt.submit", session_id=sid, text="instead", truncate_before_user_ordinal=0)
            hold.release()
            assert client.answer(compression)["status"] == "compressed"
            assert client.event("message.complete", sid)["text"] == "Answered."
    assert "lamps" in server.model.requests[-1].body.decode() and "and now?" in server.model.requests[-1].body.decode()
