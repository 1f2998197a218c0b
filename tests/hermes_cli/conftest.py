"""What tests of commands can ask for: a command run for real, in this process, on a store of either engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.hermes_cli import doctors
from tests.hermes_cli.model_server import KEY, ModelServer
from tests.support.sample_store import tell_story
from tests.support.terminal import Terminal as PersonsTerminal

from hermes_cli.main import main
from hermes_config import config
from hermes_testing.telegram.server import FakeTelegram


class Ran(NamedTuple):
    """What a command did, as a person sees it."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("sessions", "list")`: the command, with what it printed. A traceback fails the test at once."""

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert code != 70, f"a defect came through: {err}"
        if code:
            assert err.splitlines()[-1].startswith("hermes: "), err
        return Ran(code, out, err)

    return command


@pytest.fixture
def named_store(address: str | Path, monkeypatch: pytest.MonkeyPatch) -> str | Path:
    """The commands of this test work on the test's own store, which `db` opens as well."""
    monkeypatch.setenv("HERMES_DATABASE_URL", address if isinstance(address, str) else f"sqlite:///{address}")
    return address


Terminal = Callable[..., str]


@pytest.fixture
def terminal() -> Terminal:
    """`terminal("sessions", "list", answer="y\\n")`: the command at a terminal of 80 × 24, and all that it showed."""

    def command(*arguments: str, answer: str = "") -> str:
        program = [sys.executable, "-m", "hermes_cli", *arguments]
        with PersonsTerminal(program, env={"PAGER": "cat"}, lines=24, seconds=60) as window:
            window.keys(answer)
            window.end()
            return window.raw.replace("\r\n", "\n")

    return command


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    made = ModelServer()
    monkeypatch.setenv("OLLAMA_HOST", made.address)
    yield made
    made.close()


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    made = ModelServer(KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{made.address}/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield made
    made.close()


@pytest.fixture
def healthy(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing wrong: a model, one conversation, a backup. `hermes` is on the path, as for a person."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    home.mkdir(mode=0o700)
    config.set_value("model.default", "demo")
    with doctors.Opened(home) as db:
        db.create_session("one", source="cli")
        db.append_message("one", "user", "hello")
    assert main(["backup", "create"]) == 0
    return home


@pytest.fixture
def story(home: Path) -> Path:
    """A home with a few conversations in it."""
    with doctors.Opened(home) as db:
        tell_story(db)
    return home


@pytest.fixture
def telegram(home: Path) -> Iterator[FakeTelegram]:
    """A Telegram that this home's configuration names as its Bot API server."""
    with FakeTelegram() as fake:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(f"platforms:\n  telegram:\n    extra:\n      base_url: {fake.base_url}\n")
        yield fake
