"""`hermes setup`: with a real server on loopback, at a terminal and without one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes_config import config

from .conftest import Run, Terminal

KEY = "sk-" + "k3y0" * 10


class Server:
    """A model server that speaks chat completions; with `key`, only to whoever sends it."""

    def __init__(self, key: str = "") -> None:
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send("application/json", json.dumps({"data": [{"id": "little-model"}]}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append(body["model"])
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    self._send("application/json", '{"error": {"message": "bad key"}}', status=401)
                    return
                chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}]}
                end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
                said = "".join(f"data: {json.dumps(part)}\n\n" for part in (chunk, end))
                self._send("text/event-stream", f"{said}data: [DONE]\n\n")

            def _send(self, kind: str, text: str, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setenv("OLLAMA_HOST", made.address)
    yield made
    made.close()


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server(KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{made.address}/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield made
    made.close()


def test_a_server_on_this_machine_is_found_and_tried(run: Run, server: Server, home: Path) -> None:
    done = run("setup", "--non-interactive")
    assert done.code == 0 and "ollama/little-model. It answers." in done.out
    assert server.asked == ["little-model"]
    entry = config.load().tree["model"]
    assert (entry["default"], entry["provider"]) == ("little-model", "ollama")
    assert home.stat().st_mode & 0o777 == 0o700
    again = run("setup", "--non-interactive")
    assert "kept" in again.out and server.asked == ["little-model"], "what is set is kept, and not asked again"


def test_a_key_is_tried_and_goes_into_env_alone(
    run: Run, keyed: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    done = run("setup", "--non-interactive", "--provider", "openai", "--key", "-", "--budget-day", "2.5")
    assert done.code == 0 and "openai/gpt-5. It answers." in done.out
    assert (home / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert KEY not in (home / "config.yaml").read_text() + done.out + done.err
    assert config.load().budget.day.usd == 2.5


def test_a_key_that_is_no_good_is_not_kept(run: Run, keyed: Server, home: Path) -> None:
    done = run("setup", "--non-interactive", "--provider", "openai", "--key", "sk-" + "wrong" * 9)
    assert done.code == 1 and done.err.count("\n") == 1
    assert not (home / ".env").exists() and not (home / "config.yaml").exists()


def test_a_server_of_ones_own_with_a_key(run: Run, keyed: Server, home: Path) -> None:
    address = f"http://{keyed.address}/v1"
    config.set_value("model.context_length", 1234)
    done = run("setup", "--non-interactive", "--base-url", address, "--model", "mine", "--key", KEY)
    assert done.code == 0, done.err
    entry = config.load().tree["model"]
    assert dict(entry) == {"default": "mine", "provider": "custom", "base_url": address, "key_env": "HERMES_MODEL_KEY"}
    assert KEY in (home / ".env").read_text()


def test_nothing_found_and_nothing_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_cli.setup_model.local_servers", lambda loaded: [])
    done = run("setup", "--non-interactive")
    assert done.code == 2 and "no model server answers" in done.err


@pytest.mark.parametrize("flags", [["--budget-day", "lots"], ["--provider", "nobody"], ["--base-url", "ftp://x"]])
def test_a_wrong_flag_is_one_line(run: Run, flags: list[str]) -> None:
    done = run(
        "setup", "--non-interactive", "--no-test", *(["--model", "demo"] if "--budget-day" in flags else []), *flags
    )
    assert done.code == 2 and done.err.count("\n") == 1


def test_without_a_terminal_it_does_not_ask(run: Run) -> None:
    done = run("setup")
    assert done.code == 2 and "--non-interactive" in done.err


def test_at_a_terminal_five_questions_and_enter_keeps(terminal: Terminal, server: Server, home: Path) -> None:
    shown = terminal("setup", answer="1\nn\nno\n3\n")
    assert "ollama" in shown and "little-model" in shown and "Ready." in shown
    assert shown.count("?") <= 5
    loaded = config.load(home)
    assert loaded.tree["model"]["provider"] == "ollama"
    assert loaded.tree["approvals"]["mode"] == "off" and loaded.budget.day.usd == 3
    before = (home / "config.yaml").read_text()
    again = terminal("setup", answer="\n\n\n\n")
    assert "Enter keeps ollama/little-model" in again and "$3, as now" in again
    assert (home / "config.yaml").read_text() == before


def test_an_answer_that_is_no_choice_is_asked_again(terminal: Terminal, server: Server, home: Path) -> None:
    assert "There is no 99." in terminal("setup", answer="99\n1\n\n\n\n")
    assert config.load(home).tree["model"]["provider"] == "ollama"
