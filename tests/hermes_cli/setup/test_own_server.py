"""`hermes setup` with a model server of one's own, by the screens alone; and where a key goes.

The server is a real one on loopback. Beside it stands a proxy that every other connection of the process would have to
go through, and a record of every name that was looked up and every address that was connected to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.hermes_cli.conftest import Run
from tests.hermes_cli.doctors import THE_REST, doctor
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.terminal import Terminal

from hermes_config import config

pytestmark = pytest.mark.slow

MODEL, ADDRESS, ITS_KEY = "Type a number, a model", "Its address, such as", "sent only there, not shown"


class Elsewhere:
    """Everything that the process tries to reach besides one address, and all bytes that get there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import socket

        self._log, self.heard = folder / "connections.log", b""
        self._log.touch()
        (folder / "sitecustomize.py").write_text(
            "import os, sys\n"
            f"log = os.open({str(self._log)!r}, os.O_WRONLY | os.O_APPEND)\n"
            "def seen(event, args):\n"
            "    if event == 'socket.getaddrinfo':\n"
            "        os.write(log, f'{args[0]}:{args[1]}\\n'.encode())\n"
            "    elif event == 'socket.connect' and isinstance(args[1], tuple):\n"
            "        os.write(log, f'{args[1][0]}:{args[1][1]}\\n'.encode())\n"
            "sys.addaudithook(seen)\n",
            encoding="utf-8",
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        Thread(target=self._listen, daemon=True).start()
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://{self.address}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)

    def _listen(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            with one:
                one.settimeout(2)
                try:
                    self.heard += one.recv(65_536)
                    one.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                    self.heard += one.recv(65_536)
                except OSError:
                    continue

    def reached(self, *known: str) -> set[str]:
        """Hosts that were looked up or connected to, but for these and for the search for servers on loopback."""
        searched = {f"127.0.0.1:{port}" for port in (11434, 1234, 8080, 8000)}
        return {*self._log.read_text(encoding="utf-8").split()} - searched - {*known}

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    (tmp_path / "spy").mkdir()
    made = Elsewhere(tmp_path / "spy", monkeypatch)
    yield made
    made.close()


@pytest.fixture
def own() -> Iterator[ModelServer]:
    made = ModelServer(KEY, models=("mine-large", "mine-small"))
    yield made
    made.close()


def _setup(*flags: str, columns: int = 120) -> Terminal:
    return Terminal([sys.executable, "-m", "hermes_cli", "setup", *flags], columns=columns)


def _answer(window: Terminal, *answers: tuple[str, str]) -> None:
    for question, answer in answers:
        window.see(question)
        window.type(answer)


def _is_kept(home: Path, own: ModelServer, model: str) -> None:
    loaded = config.load(home)
    assert dict(loaded.tree["model"]) == {
        "default": model, "provider": "custom", "base_url": f"http://{own.address}/v1", "key_env": "HERMES_MODEL_KEY",
    }  # fmt: skip
    assert (home / ".env").read_text(encoding="utf-8") == f"HERMES_MODEL_KEY={KEY}\n"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


def _key_went_nowhere_else(elsewhere: Elsewhere, own: ModelServer) -> None:
    assert elsewhere.heard == b"" and elsewhere.reached(own.address) == set()
    assert {*own.shown} <= {"", f"Bearer {KEY}"} and f"Bearer {KEY}" in own.shown


def test_ones_own_server_is_the_first_line_and_needs_nothing_but_the_screens(
    own: ModelServer, elsewhere: Elsewhere, home: Path, run: Run
) -> None:
    with _setup(columns=80) as window:
        first = window.see(MODEL)
        assert "  1  your own" in first and "http://127.0.0.1:8000/v1" in first
        window.type("1")
        _answer(window, (ADDRESS, f"http://{own.address}/v1"))
        window.see(f"Key for {own.address}; {ITS_KEY}")
        window.type(KEY)
        shown = window.see("Which of its models?")
        assert "1  mine-large" in shown and "2  mine-small" in shown
        window.type("2")
        _answer(window, *THE_REST)
        assert window.end() == 0
        assert "The model answers." in window.shown and KEY not in window.raw
    _is_kept(home, own, "mine-small")
    _key_went_nowhere_else(elsewhere, own)
    assert own.asked == ["mine-small"]
    assert run("-z", "hello").out.strip() == "ok", "and it talks at once"


@pytest.mark.parametrize("typed", ["http://{}/v1", "http://{}/v1/", "http://{}", "http://{}/v1/chat/completions"])
def test_an_address_at_the_question_for_a_model_is_ones_own_server(
    own: ModelServer, elsewhere: Elsewhere, home: Path, typed: str
) -> None:
    """The review typed it there, and its key would have gone to openrouter.ai."""
    with _setup() as window:
        _answer(window, (MODEL, typed.format(own.address)), (f"Key for {own.address}; {ITS_KEY}", KEY))
        _answer(window, ("Which of its models?", ""), *THE_REST)
        assert window.end() == 0
        assert "openrouter" not in window.shown.partition("Key for")[2].lower()
    _is_kept(home, own, "mine-large")
    _key_went_nowhere_else(elsewhere, own)


def test_bad_input_gets_one_line_and_the_question_again(own: ModelServer, elsewhere: Elsewhere, home: Path) -> None:
    at_the_model = {
        "192.168.1.5:4000/v1": "It begins with http:// or https://",
        "ftp://127.0.0.1/v1": "It begins with http:// or https://",
        f"http://me:pw@{own.address}/v1": "must not hold a user, password or query",
        "http://[::1/v1": "is not the address of a server",
        "banana": "Which provider has banana?",
        "99": "There is no 99 in the list.",
        KEY: "This looks like a key; it was sent nowhere.",
    }
    at_the_address = {
        "gpt-5": "'gpt-5' is not the address of a server. It begins with http:// or https://",
        "openai/gpt-5": "'openai/gpt-5' is not the address of a server.",
        f"http://{own.address}/v1?api_key=abc": "must not hold a user, password or query",
        KEY: "'[secret]' is not the address of a server.",
    }
    with _setup() as window:
        for times, (typed, said) in enumerate(at_the_model.items(), 1):
            window.see(MODEL, times=times)
            before = window.shown.count("\n")
            window.type(typed)
            window.see(said)
            window.see(MODEL, times=times + 1)
            assert window.shown.count("\n") - before <= 4, "one line, and the question"
        window.type("custom/mine-small")
        for times, (typed, said) in enumerate(at_the_address.items(), 1):
            window.see(ADDRESS, times=times)
            window.type(typed)
            window.see(said)
        window.see(ADDRESS, times=len(at_the_address) + 1)
        window.type(f"{own.address}/v1")  # on this machine http:// goes without saying
        _answer(window, (f"Key for {own.address}", "sk-" + "wr0n9" * 8))
        window.see(f"{own.address} refuses this key (401)")
        window.see(f"Key for {own.address}", times=2)
        window.type("")
        window.see(f"{own.address} wants a key (401)")
        window.see(f"Key for {own.address}", times=3)
        window.type(KEY)
        _answer(window, *THE_REST)
        assert window.end() == 0
        assert "wr0n9" not in window.raw
    _is_kept(home, own, "mine-small")
    assert elsewhere.heard == b"" and elsewhere.reached(own.address) == set()


def test_a_misspelt_name_from_the_servers_list_is_asked_for_again_alone(
    own: ModelServer, elsewhere: Elsewhere, home: Path
) -> None:
    with _setup() as window:
        _answer(window, (MODEL, f"http://{own.address}/v1"), (f"Key for {own.address}; {ITS_KEY}", KEY))
        _answer(window, ("Which of its models?", "mine-larg"))
        said = window.see("Which of its models?", times=2)
        assert "does not know the model (404)" in said and "/model" not in said
        window.type("mine-large")
        _answer(window, *THE_REST)
        assert window.end() == 0
    _is_kept(home, own, "mine-large")


def test_an_address_where_a_models_name_is_asked_for(elsewhere: Elsewhere, home: Path) -> None:
    own = ModelServer(KEY, lists=False)
    with _setup() as window:
        _answer(window, (MODEL, f"http://{own.address}/v1"), (f"Key for {own.address}", KEY))
        _answer(window, ("The name of its model", "http://elsewhere.example/v1"))
        window.see("is an address; give the name of a model here.")
        window.see("The name of its model", times=2)
        window.type("mine")
        _answer(window, *THE_REST)
        assert window.end() == 0
    own.close()
    _is_kept(home, own, "mine")
    _key_went_nowhere_else(elsewhere, own)


def test_a_key_does_not_follow_a_redirect(elsewhere: Elsewhere, home: Path, tmp_path: Path) -> None:
    thief = ModelServer()
    own = ModelServer(KEY, moved=f"http://{thief.address}")
    refused = f"{own.address} redirects to another address (302), and Hermes sends no key there"
    with _setup() as window:
        _answer(window, (MODEL, f"http://{own.address}/v1"))
        window.see(refused)
        window.see(MODEL, times=2)
        assert "Key for" not in window.shown
        window.press("ctrl-c")
        assert window.end() == 130
    (tmp_path / "key").write_text(KEY)
    with _setup("--base-url", f"http://{own.address}/v1", "--key", f"@{tmp_path / 'key'}") as window:
        window.see(refused)
        assert window.end() == 1
    for one in (own, thief):
        one.close()
    assert thief.shown == [] and elsewhere.heard == b"" and elsewhere.reached(own.address) == set()
    assert not (home / ".env").exists()


def test_nothing_there_is_told_before_anything_is_kept(elsewhere: Elsewhere, home: Path) -> None:
    with _setup() as window:
        _answer(window, (MODEL, "http://127.0.0.1:9/v1"))
        window.see("127.0.0.1:9 does not answer: Connection refused. Start it, or check the address.")
        window.see(MODEL, times=2)
        window.press("ctrl-c")
        assert window.end() == 130
        assert "Key for" not in window.shown, "a server that is not running needs no key"
    assert not (home / "config.yaml").exists()


def test_a_key_that_others_could_read_on_the_way_is_warned_of(elsewhere: Elsewhere, home: Path) -> None:
    with _setup() as window:
        _answer(window, (MODEL, "http://192.0.2.7:4000/v1"))
        window.see("http:// is not encrypted: others on the network can read the key on its way to 192.0.2.7:4000.")
        window.see("Key for 192.0.2.7:4000")
        window.press("ctrl-c")
        assert window.end() == 130
    assert elsewhere.heard == b"" and elsewhere.reached() == set()


def test_a_providers_key_goes_to_the_host_that_stands_beside_the_question(elsewhere: Elsewhere, home: Path) -> None:
    """And the listener hears of it: what the other tests say about silence means something."""
    with _setup() as window:
        _answer(window, (MODEL, "openrouter/auto"))
        window.see("Your key for openrouter; sent only to openrouter.ai, not shown:")
        window.type(KEY)
        window.see("That did not work")
        window.see(MODEL, times=2)
        window.press("ctrl-c")
        assert window.end() == 130
    assert elsewhere.heard.startswith(b"CONNECT openrouter.ai:443 ") and KEY.encode() not in elsewhere.heard
    assert elsewhere.reached() == {elsewhere.address}


def test_the_flags_ask_for_the_key_that_is_missing(own: ModelServer, elsewhere: Elsewhere, home: Path) -> None:
    address = f"http://{own.address}/v1"
    with _setup("--base-url", address, "--model", "mine-small") as window:
        _answer(window, (f"Key for {own.address}; {ITS_KEY}", KEY), *THE_REST)
        assert window.end() == 0
    _is_kept(home, own, "mine-small")
    _key_went_nowhere_else(elsewhere, own)


def test_without_a_terminal_the_missing_key_is_one_line(own: ModelServer, run: Run) -> None:
    done = run("setup", "--non-interactive", "--base-url", f"http://{own.address}/v1", "--model", "mine-small")
    assert done.code == 1 and done.err.count("\n") == 1
    assert f"{own.address} needs a key, but none was given" in done.err and "--key -" in done.err
    wrong = run("setup", "--non-interactive", "--model", f"http://{own.address}/v1")
    assert wrong.code == 2 and "is an address, not a model" in wrong.err and "--base-url" in wrong.err


def test_doctor_leads_back_to_the_server_whose_key_is_missing(
    own: ModelServer, elsewhere: Elsewhere, healthy: Path
) -> None:
    """The review: doctor sent its reader to set-up, and set-up to openrouter.ai."""
    config.set_value("model.default", "mine-small")
    config.set_value("model.provider", "custom")
    config.set_value("model.base_url", f"http://{own.address}/v1")
    config.set_value("model.key_env", "HERMES_MODEL_KEY")
    seen = next(one for one in doctor()["checks"] if one["check"] == "model")
    assert (seen["mark"], seen["fix"]) == ("problem", "hermes setup")
    with Terminal(["bash", "-c", seen["fix"]], columns=120) as window:
        window.see("Enter keeps custom/mine-small; its key is missing")
        window.type("")
        _answer(window, (f"Key for {own.address}; {ITS_KEY}", KEY), *THE_REST)
        assert window.end() == 0
    _is_kept(healthy, own, "mine-small")
    _key_went_nowhere_else(elsewhere, own)
    assert next(one for one in doctor()["checks"] if one["check"] == "model")["mark"] == "ok"


def test_another_key_is_asked_for_when_ones_own_server_refuses_it(
    own: ModelServer, elsewhere: Elsewhere, home: Path
) -> None:
    home.mkdir(mode=0o700)
    entry = {"default": "mine-small", "provider": "custom", "base_url": f"http://{own.address}/v1",
             "key_env": "HERMES_MODEL_KEY"}  # fmt: skip
    (home / "config.yaml").write_text(json.dumps({"model": entry}), encoding="utf-8")
    (home / ".env").write_text("HERMES_MODEL_KEY=sk-0ld0ld0ld0ld0ld0ld\n", encoding="utf-8")
    with _setup() as window:
        _answer(window, (MODEL, ""), (f"Another key for {own.address}; {ITS_KEY}", KEY), *THE_REST)
        assert window.end() == 0
    _is_kept(home, own, "mine-small")
    assert elsewhere.heard == b"" and elsewhere.reached(own.address) == set()


def test_an_address_kept_as_a_models_name_is_no_model_of_openrouter(run: Run, healthy: Path) -> None:
    """As the old set-up left it."""
    config.set_value("model.default", "http://127.0.0.1:4000/v1")
    config.set_value("model.provider", "auto")
    seen = next(one for one in doctor()["checks"] if one["check"] == "model")
    assert seen["mark"] == "problem" and "is an address, not the name of a model" in seen["says"]
    assert seen["fix"] == "hermes setup" and "OPENROUTER" not in json.dumps(seen)
