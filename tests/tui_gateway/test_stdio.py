"""The server over pipes: what a client may do to it, and what it must not be able to do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.tui_gateway.client import RpcFailed, StdioClient

from hermes_agent import mentions, process_identity
from hermes_agent.tools.base import FileContext
from hermes_config.config import of as config_of
from hermes_state import SessionDB
from hermes_state.ids import ConversationId
from hermes_state.turns.inbox import local_route

pytestmark = pytest.mark.slow

STORY = "tell me the long story"
PACED = "model: demo\ndemo:\n  tokens_per_second: 40\nauto_title: false\n"


@pytest.fixture
def paced(demo_home: Path) -> Path:
    """A home whose model takes its time."""
    (demo_home / "config.yaml").write_text(PACED, encoding="utf-8")
    return demo_home


def test_bad_input_is_answered_and_nothing_more(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        client.event("gateway.ready")
        for line, code in (
            (b"{no json", -32700),
            (b"\xff\xfe\x00", -32700),
            (b"[" * 100_000, -32700),
            (b'{"id": NaN, "method": "session.list"}', -32700),
            (b"[]", -32600),
            (b'{"id": 99}', -32600),
            (b'{"id": 99, "method": 5}', -32600),
            (b'{"id": 99, "method": "session.list", "params": []}', -32602),
            (b'{"id": 99, "method": "session.history", "params": {"session_id": 7}}', -32602),
            (b'{"id": 99, "method": "no.such"}', -32601),
            (b'{"id": 99, "method": "session.history", "params": null}', 4001),
        ):
            assert client.process.stdin is not None
            client.process.stdin.write(b"\n" + line + b"\n")
            client.process.stdin.flush()
            frame = client._take(10)
            assert frame["error"]["code"] == code, line[:60]
        assert client.call("session.list") == {"sessions": []}
        odd = {"role": "assistant", "content": "said elsewhere", "tool_calls": 5}
        assert client.call("session.create", messages=[odd])["message_count"] == 1, "what it does not have is ignored"
        assert client.end() == 0 and not client.errors


def test_what_was_asked_before_the_input_ended_is_answered(demo_home: Path) -> None:
    with StdioClient(demo_home, HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S="8") as client:
        asked = [client.ask("session.list"), client.ask("setup.status"), client.ask("commands.catalog")]
        assert client.end() == 0
        assert all(client.answer(number) for number in asked)


def test_a_changed_setting_takes_effect_at_the_next_turn_of_an_open_session(demo_home: Path) -> None:
    file = demo_home / "config.yaml"
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        assert client.say(sid, "hello")
        assert "terminal" in client.event("session.info", sid)["tools"]
        file.write_text(f"{file.read_text(encoding='utf-8')}toolsets: [todo]\n", encoding="utf-8")
        assert client.say(sid, "hello again")
        while (tools := client.event("session.info", sid)["tools"]) != {"todo": ["todo"]}:
            assert tools, "the agent is made anew"
        assert client.end() == 0 and not client.errors


def test_a_broken_configuration_is_said_and_can_be_mended(demo_home: Path) -> None:
    (demo_home / "config.yaml").write_text("limits:\n  rpc_sessions: many\n", encoding="utf-8")
    with StdioClient(demo_home) as client:
        client.event("gateway.ready")
        assert "rpc_sessions" in client.event("error")["message"]
        with pytest.raises(RpcFailed) as failed:
            client.call("session.create")
        assert failed.value.code == 5001 and "rpc_sessions" in str(failed.value)
        (demo_home / "config.yaml").write_text("model: demo\n", encoding="utf-8")
        assert client.say(client.call("session.create")["session_id"], "hello")
        assert client.end() == 0 and not client.errors


def test_a_request_that_is_too_long_is_refused(demo_home: Path) -> None:
    with (demo_home / "config.yaml").open("a", encoding="utf-8") as file:
        file.write("limits:\n  rpc_frame_bytes: 65536\n")
    with StdioClient(demo_home) as client:
        client.event("gateway.ready")
        client.send(json.dumps({"id": 99, "method": "complete.slash", "params": {"text": "x" * 300_000}}))
        assert client._take(10)["error"]["code"] == -32600
        assert client.call("commands.catalog")["pairs"]


def test_an_answer_larger_than_what_may_wait_is_given_and_those_behind_it_too(demo_home: Path) -> None:
    with (demo_home / "config.yaml").open("a", encoding="utf-8") as file:
        file.write("limits:\n  rpc_queue_bytes: 65536\n")
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        db.create_session("20261115_110000_abcdef", "cli")
        for number in range(3):
            db.append_message("20261115_110000_abcdef", "user", f"{number} " + "x" * 200_000)
            db.append_message("20261115_110000_abcdef", "assistant", f"ok {number}")
    with StdioClient(demo_home) as client:
        found = client.call("session.resume", session_id="20261115_110000_abcdef")
        assert client.call("session.list")["sessions"]
        sid, messages = found["session_id"], found["messages"]
        assert found["message_count"] == 6 and found["first"] == 6 - len(messages) > 0, "a page, and not all of it"
        while found["first"]:
            found = client.call("session.history", session_id=sid, before=found["first"])
            messages = found["messages"] + messages
        assert [one["text"][0] for one in messages if one["role"] == "user"] == ["0", "1", "2"]
        assert client.end() == 0 and not client.errors


def test_stray_prints_do_not_come_between_the_frames(demo_home: Path) -> None:
    plugin = demo_home / "plugins" / "loud"
    plugin.mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: loud\nversion: '1'\n", encoding="utf-8")
    (plugin / "__init__.py").write_text(
        "import os\n\ndef register(ctx):\n    print('stray')\n    os.system('echo stray child')\n"
        "    ctx.register_hook('pre_llm_call', lambda **facts: print('stray again'))\n",
        encoding="utf-8",
    )
    with (demo_home / "config.yaml").open("a", encoding="utf-8") as file:
        file.write("plugins:\n  enabled: [loud]\n")
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        assert client.say(sid, "hello")
        assert client.end() == 0
        assert "stray again" in "".join(client.errors), "every line of stdout was a frame, or the client had failed"


def test_a_prompt_while_a_turn_runs_interrupts_it_and_is_next(paced: Path) -> None:
    with StdioClient(paced) as client:
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text=STORY)
        client.event("message.delta", sid)
        assert client.call("prompt.submit", session_id=sid, text="hello")["status"] == "queued"
        assert client.event("message.complete", sid)["status"] == "interrupted"
        assert client.event("message.complete", sid)["text"].startswith("Hello")
        assert client.events().count("message.start") == 2


def test_a_question_of_a_turn_that_was_stopped_is_taken_back(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        for method, words in (("slash.exec", {"command": "/stop"}), ("prompt.submit", {"text": "hello"})):
            client.call("prompt.submit", session_id=sid, text="ask me which colour I like")
            asked = client.event("clarify.request", sid)
            client.call(method, session_id=sid, **words)
            assert client.event("clarify.expire", sid) == {"request_id": asked["request_id"]}


def test_queued_prompts_wait_and_become_one(paced: Path) -> None:
    with StdioClient(paced) as client:
        client.call("config.set", key="busy", value="queue")
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text="hello")
        client.event("message.start", sid)
        for words in ("first thing", "second thing"):
            assert client.call("prompt.submit", session_id=sid, text=words)["status"] == "queued"
        assert client.event("message.complete", sid)["status"] == "complete"
        client.event("message.complete", sid)
        said = [
            one["text"] for one in client.call("session.history", session_id=sid)["messages"] if one["role"] == "user"
        ]
        assert said == ["hello", "first thing\n\nsecond thing"]


def test_words_that_came_too_late_for_the_turn_stand_before_what_waits(paced: Path) -> None:
    with StdioClient(paced) as client:
        client.call("config.set", key="busy", value="queue")
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text="hello")
        client.event("message.delta", sid)
        assert client.call("session.steer", session_id=sid, text="and briefly")["status"] == "queued"
        assert client.call("prompt.submit", session_id=sid, text="who are you?")["status"] == "queued"
        client.event("message.complete", sid)
        client.event("message.complete", sid)
        said = [
            one["text"] for one in client.call("session.history", session_id=sid)["messages"] if one["role"] == "user"
        ]
        assert said == ["hello", "and briefly\n\nwho are you?"]


def test_interrupt_keeps_what_was_done_and_forgets_what_waits(paced: Path) -> None:
    with StdioClient(paced) as client:
        client.call("config.set", key="busy", value="queue")
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text=STORY)
        heard = client.event("message.delta", sid)["text"]
        client.call("prompt.submit", session_id=sid, text="never mind")
        assert client.call("session.interrupt", session_id=sid) == {"status": "interrupted"}
        ended = client.event("message.complete", sid)
        assert ended["status"] == "interrupted"
        client.event("session.info", sid)
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["role"] for one in messages] == ["user", "assistant"]
        assert messages[1]["text"].startswith(heard.strip())
        (paced / "config.yaml").write_text(PACED.replace("40", "0"), encoding="utf-8")
        assert client.say(sid, "hello").startswith("Hello")


def test_edit_and_resend_takes_back_what_followed(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        for words in ("one", "two", "three"):
            client.say(sid, words)
        with pytest.raises(RpcFailed) as failed:
            client.call("prompt.submit", session_id=sid, text="x", truncate_before_user_ordinal=3)
        assert failed.value.code == 4018
        client.call("prompt.submit", session_id=sid, text="hello", truncate_before_user_ordinal=1)
        client.event("message.complete", sid)
        said = [
            one["text"] for one in client.call("session.history", session_id=sid)["messages"] if one["role"] == "user"
        ]
        assert said == ["one", "hello"]


def test_titles_branches_undo_and_commands(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        sid = client.call("session.create", title="Kyoto")["session_id"]
        assert client.call("session.title", session_id=sid)["title"] == "Kyoto"
        with pytest.raises(RpcFailed) as failed:
            client.call("session.branch", session_id=sid)
        assert failed.value.code == 4008
        client.say(sid, "hello")
        assert client.event("session.title", sid)["title"] == "Kyoto"
        copy = client.call("session.branch", session_id=sid, name="Osaka")
        assert client.call("session.undo", session_id=copy["session_id"])["text"] == "hello"
        assert client.call("session.history", session_id=copy["session_id"])["count"] == 0
        assert client.call("session.history", session_id=sid)["count"] == 2
        other = client.call("session.create")["session_id"]
        client.say(other, "hello")
        with pytest.raises(RpcFailed) as failed:
            client.call("session.title", session_id=other, title="Kyoto")
        assert failed.value.code == 4022
        assert "Kyoto" in client.call("slash.exec", session_id=sid, command="/title")["output"]
        assert client.call("slash.exec", session_id=sid, command="/retry")["message"] == "hello"
        turned = client.call("slash.exec", session_id=sid, command="/new")
        assert turned["session"]["messages"] == []
        assert client.call("command.resolve", name="/reset")["canonical"] == "new"
        with pytest.raises(RpcFailed) as failed:
            client.call("slash.exec", session_id=sid, command="/nonsense")
        assert failed.value.code == 4011
        stored = client.call("session.title", session_id=other)["session_key"]
        with pytest.raises(RpcFailed) as failed:
            client.call("session.delete", session_id=stored)
        assert failed.value.code == 4023
        client.call("session.close", session_id=other)
        assert client.call("session.delete", session_id=stored) == {"deleted": True}


def test_a_question_of_the_model_is_answered_by_the_person(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text="ask me which colour I like")
        asked = client.event("clarify.request", sid)
        assert asked["question"]
        assert client.call("clarify.respond", request_id=asked["request_id"], answer="green") == {"status": "ok"}
        assert "green" in client.event("message.complete", sid)["text"]
        with pytest.raises(RpcFailed) as failed:
            client.call("clarify.respond", request_id=asked["request_id"], answer="red")
        assert failed.value.code == 4009


def test_a_model_that_cannot_be_had_is_said_in_one_line(demo_home: Path) -> None:
    (demo_home / "config.yaml").write_text("model:\n  provider: anthropic\n  default: claude-x\n", encoding="utf-8")
    with StdioClient(demo_home, ANTHROPIC_API_KEY="") as client:
        assert client.call("setup.status") == {"provider_configured": False}
        sid = client.call("session.create")["session_id"]
        client.call("prompt.submit", session_id=sid, text="hello")
        message = client.event("error", sid)["message"]
        assert "ANTHROPIC_API_KEY" in message and "\n" not in message
        (demo_home / "config.yaml").write_text("model: demo\n", encoding="utf-8")
        assert client.say(sid, "hello"), "the same session goes on when it is mended"


def test_deltas_come_together_and_make_the_whole(demo_home: Path) -> None:
    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        text = client.say(sid, STORY)
        found = [one["params"] for one in client.frames if one.get("method") == "event"]
        deltas = [one["payload"]["text"] for one in found if one["type"] == "message.delta"]
        assert "".join(deltas) == text
        assert len(deltas) < 50, "what follows each other comes together"


def test_a_client_that_does_not_read_stalls_nobody(demo_home: Path) -> None:
    """More than a pipe holds waits for it; the turns are stored all the same. Then it reads, and all is there."""
    command = [sys.executable, "-m", "tui_gateway.entry"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        said = [{"role": "user", "content": "x" * 100_000}]
        sids = []
        for number in range(4):
            process.stdin.write(json.dumps({"id": number, "method": "session.create"}).encode() + b"\n")
            process.stdin.flush()
            while "result" not in (frame := json.loads(process.stdout.readline())):
                pass
            sids.append(frame["result"]["session_id"])
        for sid in sids * 3:
            params = {"session_id": sid, "text": STORY if sid != sids[0] else said[0]["content"]}
            process.stdin.write(json.dumps({"id": sid, "method": "prompt.submit", "params": params}).encode() + b"\n")
            process.stdin.write(json.dumps({"id": sid, "method": "commands.catalog"}).encode() + b"\n" * 2)
            process.stdin.flush()
        with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
            until = time.monotonic() + 30
            while db.turns.counts().get("done", 0) < len(sids):
                assert time.monotonic() < until, "the turns wait for a client that does not read"
                time.sleep(0.05)
        process.stdin.close()
        frames = [json.loads(line) for line in process.stdout]
        assert sum(frame.get("id") in sids for frame in frames) == len(sids) * 6
        assert process.wait(10) == 0


@pytest.mark.parametrize("how", ["its input ends", "its reader is gone", "SIGTERM", "SIGHUP"])
def test_it_ends_in_order(demo_home: Path, how: str) -> None:
    with StdioClient(demo_home, HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S="8") as client:
        made = client.call("session.create")
        client.say(made["session_id"], "hello")
        if how == "its input ends":
            client.end()
        elif how == "its reader is gone":
            assert client.process.stdout is not None and client.process.stdin is not None
            number = client.process.stdout.fileno()
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, number)  # the pipe has no reader any more
            os.close(null)
            for at in range(50):
                try:
                    client.process.stdin.write(b'{"id": 99, "method": "commands.catalog"}\n')
                    client.process.stdin.flush()
                except BrokenPipeError:
                    break
                if client.process.poll() is not None or at > 48:
                    break
                time.sleep(0.05)
        else:
            client.process.send_signal(getattr(signal, how))
        assert client.process.wait(10) == 0
        assert "Traceback" not in "".join(client.errors)
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        row = db.get_session(made["stored_session_id"])
        assert row is not None and row["end_reason"] == "tui_shutdown" and row["message_count"] == 2


def test_a_killed_server_loses_nothing_and_the_next_one_takes_it_up(paced: Path) -> None:
    with StdioClient(paced) as client:
        made = client.call("session.create")
        client.call("prompt.submit", session_id=made["session_id"], text=STORY)
        client.event("message.delta", made["session_id"])
        client.process.kill()
        client.process.wait(10)
    (paced / "config.yaml").write_text(PACED.replace("40", "0"), encoding="utf-8")
    with StdioClient(paced) as client:
        sid = client.call("session.resume", session_id=made["stored_session_id"])["session_id"]
        assert client.call("prompt.submit", session_id=sid, text="hello")["status"] == "queued"
        ends = [client.event("message.complete", sid)["text"] for _ in range(2)]
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["text"] for one in messages] == [STORY, ends[0], "hello", ends[1]], "each got its answer, once"


def test_a_prompt_that_waits_when_the_server_is_killed_is_answered_by_the_next_one(paced: Path) -> None:
    with StdioClient(paced) as client:
        client.call("config.set", key="busy", value="queue")
        made = client.call("session.create")
        client.call("prompt.submit", session_id=made["session_id"], text=STORY)
        client.event("message.delta", made["session_id"])
        assert client.call("prompt.submit", session_id=made["session_id"], text="what is 6+6?")["status"] == "queued"
        client.process.kill()
        client.process.wait(10)
    (paced / "config.yaml").write_text(PACED.replace("40", "0"), encoding="utf-8")
    with StdioClient(paced) as client:
        state = client.call("session.resume", session_id=made["stored_session_id"])
        assert state["queued"] and state["waiting"] == ["what is 6+6?"]
        sid = state["session_id"]
        assert client.call("session.recover", session_id=sid) == {"status": "streaming"}
        ends = [client.event("message.complete", sid)["text"] for _ in range(2)]
        messages = client.call("session.history", session_id=sid)["messages"]
        assert [one["text"] for one in messages] == [STORY, ends[0], "what is 6+6?", "6+6 = 12"]
    with contextlib.closing(SessionDB(paced / "state.db")) as db:
        assert [row.state for row in db.inbox.list()] == ["answered", "answered"]


def test_a_prompt_whose_process_died_before_the_first_turn_began_is_found_and_answered_once(demo_home: Path) -> None:
    gone = "from hermes_agent import process_identity; print(process_identity.new_holder())"
    holder = subprocess.run([sys.executable, "-c", gone], capture_output=True, text=True, check=True).stdout.strip()
    conversation = "20260101_000000_abcdef"
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        for name, whose in (("left", holder), ("others", process_identity.new_holder())):
            db.inbox.accept(
                platform="local", chat_id=conversation, message_id=f"local:{name}", route=local_route(conversation),
                payload={"text": f"what is {len(name)}+1?", "holder": whose},
            )  # fmt: skip
    with StdioClient(demo_home) as client:
        sid = client.call("session.resume", session_id=conversation)["session_id"]
        client.call("session.recover", session_id=sid)
        assert client.event("message.complete", sid)["text"] == "4+1 = 5"
        assert client.call("session.recover", session_id=sid) == {"status": "idle"}, "a living process keeps its own"


def test_files_named_with_at_go_along_and_are_shown_by_name(demo_home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("marmalade\n")
    (tmp_path / ".env").write_text("TOKEN=hunter2\n")
    with StdioClient(demo_home, cwd=tmp_path) as client:
        made = client.call("session.create", cwd=str(tmp_path))
        sid = made["session_id"]
        with pytest.raises(RpcFailed) as refused:
            client.call("prompt.submit", session_id=sid, text="what is in @.env?")
        assert refused.value.code == 4004 and "may hold secrets" in str(refused.value)
        sent = client.call("prompt.submit", session_id=sid, text="what is in @notes.md?")
        assert sent["files"] == ["notes.md (1 line)"]
        client.event("message.complete", sid)
        first = client.call("session.history", session_id=sid)["messages"][0]
        assert (first["text"], first["files"]) == ("what is in @notes.md?", ["notes.md (1 line)"])
        again = client.call("slash.exec", session_id=sid, command="/retry")
        assert again["message"] == "what is in @notes.md?"
        client.call("prompt.submit", session_id=sid, text=again["message"])
        client.event("message.complete", sid)
        assert client.call("session.undo", session_id=sid)["text"] == "what is in @notes.md?"
    db = SessionDB(demo_home / "state.db")
    try:
        rows = db.get_messages(made["stored_session_id"], include_inactive=True)
        assert all("marmalade" in row["content"] for row in rows if row["role"] == "user")
        assert rows and not any("hunter2" in str(row["content"]) for row in rows)
    finally:
        db.close()


def test_a_compression_is_no_message_in_any_window(demo_home: Path) -> None:
    long = "A long remark about the harbour, the lamp and the ledger. " * 20
    said = [{"role": ("user", "assistant")[at % 2], "content": f"{at}: {long}"} for at in range(40)]
    with StdioClient(demo_home) as one, StdioClient(demo_home) as two:
        made = one.call("session.create", messages=said)
        here = made["session_id"]
        one.say(here, "hello")
        one.event("session.info", here)
        there = two.call("session.resume", session_id=made["stored_session_id"])["session_id"]
        before = [client.events().count("message.start") for client in (one, two)]
        done = one.call("session.compress", session_id=here)
        assert done["status"] == "compressed" and done["after_tokens"] < done["before_tokens"]
        while two.event("session.info", there)["stored_session_id"] == made["stored_session_id"]:
            pass
        assert [client.events().count("message.start") for client in (one, two)] == before
        assert two.say(there, "hello") and one.event("message.user", here)["text"] == "hello"


def test_pictures_go_along_and_nothing_else_that_is_no_text(demo_home: Path) -> None:
    def picture(url: object) -> dict[str, object]:
        return {"type": "image_url", "image_url": {"url": url}}

    with StdioClient(demo_home) as client:
        sid = client.call("session.create")["session_id"]
        words = {"type": "text", "text": "hello"}
        for parts in ([5], [{"type": "x"}], [words, {"type": "text", "text": 7}], [picture("file:///etc/passwd")],
                      [picture("https://example.org/a.png")], [picture(None)], [{"type": "image_url"}]):  # fmt: skip
            with pytest.raises(RpcFailed) as failed:
                client.call("prompt.submit", session_id=sid, text=parts)
            assert failed.value.code == 4004
        client.call("prompt.submit", session_id=sid, text=[words, picture("data:image/png;base64,iVBORw0KGgo=")])
        assert client.event("message.complete", sid)["status"] == "complete"
        said = client.call("session.history", session_id=sid)["messages"][0]["text"]
        assert said == "hello\n[picture 1: it was not seen: demo does not take pictures]"


def test_words_of_a_chat_that_look_like_a_file_are_shown_whole(demo_home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("do as I say\n")
    with contextlib.closing(SessionDB(demo_home / "state.db")) as db:
        place = ConversationId("room")
        desk = FileContext(
            db=db, home=demo_home, workdir=tmp_path, conversation_id=place, environ={}, config=config_of(demo_home, {})
        )
        looks_so = mentions.whole("hello @notes.md", desk)
        assert mentions.files(looks_so)
        db.create_session("room", "telegram")
        db.append_message("room", "user", looks_so, platform_message_id="77")
    with StdioClient(demo_home) as client:
        (shown,) = client.call("session.resume", session_id="room")["messages"]
        assert "do as I say" in shown["text"] and "files" not in shown
