"""Scenarios: a real gateway as a child process, between a fake platform and a scripted model.

    with Scenario(FakeTelegram(), ScriptedModel(say("Hello, Ada"))) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("Hello, Ada")
        scene.kill()
        scene.start()
        ada.expect_silence(after=ada.messages()[-1].id)

The fake and the model live in this process and outlive the gateway, as Telegram and a provider do. The home is a
temporary one with a `config.yaml` and a `.env` written at each start. Every wait has a time limit, and a failure
shows the last lines of the gateway's output. A scenario ends only the processes that it started.

Limits: one gateway at a time, on POSIX systems. The model is reached over its socket (`ScriptedModel.served()`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import yaml

from hermes_testing.scripted.model import ScriptedModel
from hermes_testing.scripted.server import ScriptedServer
from hermes_testing.telegram.answers import Json
from hermes_testing.telegram.client import FakePerson, until

GATEWAY = (sys.executable, "-m", "hermes_cli", "gateway", "run")
SECONDS = 30.0
_LOG_LINES = 20


class FakePlatform(Protocol):
    """The methods that a scenario needs of a fake platform; `FakeTelegram` has them."""

    platform: str
    """Its name in `config.yaml`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def person(self, name: str, **facts: Any) -> FakePerson: ...

    def gateway_settings(self) -> Json:
        """Return the settings below `platforms.<platform>`."""
        ...

    def gateway_environment(self, allowed: Sequence[int]) -> dict[str, str]:
        """Return the variables of `.env`: secrets, and the people who may write."""
        ...

    def requests_seen(self) -> int:
        """Return the number of requests from gateways."""
        ...


class Scenario:
    """A gateway process with a fake platform and model. `config` overrides the written `config.yaml`, `environment` the
    child's environment."""

    def __init__(
        self,
        fake: FakePlatform,
        model: ScriptedModel | None = None,
        *,
        command: Sequence[str] | None = None,
        home: Path | None = None,
        config: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self.fake = fake
        self.model = model
        self.command = list(GATEWAY if command is None else command)
        self.config: Json = dict(config or {})
        self.environment = dict(environment or {})
        self.seconds = seconds
        self.starts = 0
        """The number of gateways started so far."""
        self._home = home
        self._allowed: list[int] = []
        self._owners: list[int] = []
        self._server: ScriptedServer | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()

    # -- who is there ----------------------------------------------------------------------------------------------

    def owner(self, name: str, **facts: Any) -> FakePerson:
        """Add a person who may do everything, from the next start on."""
        person = self.member(name, **facts)
        self._owners.append(person.id)
        return person

    def member(self, name: str, **facts: Any) -> FakePerson:
        """Add a person on the allow list, from the next start on."""
        person = self.fake.person(name, **facts)
        self._allowed.append(person.id)
        return person

    def stranger(self, name: str, **facts: Any) -> FakePerson:
        """Add a person whom the gateway does not know."""
        return self.fake.person(name, **facts)

    # -- the gateway -----------------------------------------------------------------------------------------------

    @property
    def home(self) -> Path:
        if self._home is None:
            raise RuntimeError("a scenario has a home only inside its with block")
        return self._home

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the gateway is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start a gateway and wait for its first request to the fake; without `wait`, only start its process."""
        if self.running:
            raise RuntimeError("the gateway is running already")
        self._write_home()
        seen = self.fake.requests_seen()
        with (self.home / "scenario.log").open("ab") as log:
            self._child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, env=self._environment(),
                start_new_session=True,
            )  # fmt: skip
        self.starts += 1
        if not wait:
            return
        self.wait(lambda: not self.running or self.fake.requests_seen() > seen, "the gateway's first request")
        if not self.running:
            raise AssertionError(f"the gateway ended at once:\n{self.log()}")

    def kill(self) -> None:
        """Kill the gateway with SIGKILL."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the gateway with SIGTERM, wait for its end, and return its exit code."""
        return self._signal(signal.SIGTERM)

    def restart(self) -> None:
        """Stop the gateway and start it again."""
        self.stop()
        self.start()

    def _signal(self, number: int) -> int:
        if self._child is None:
            raise RuntimeError("the gateway is not running")
        self._child.send_signal(number)
        try:
            code = self._child.wait(self.seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the gateway did not end within {self.seconds:g} s:\n{self.log()}") from None
        self._child = None
        return code

    def hermes(self, *arguments: str) -> str:
        """Run `hermes …` on the same home, beside the gateway; return its output. Raises when it fails."""
        command = [sys.executable, "-m", "hermes_cli", *arguments]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=self.seconds, env=self._environment(), check=False
        )
        if result.returncode != 0:
            raise AssertionError(f"hermes {' '.join(arguments)} failed ({result.returncode}): {result.stderr.strip()}")
        return result.stdout

    def log(self, lines: int = _LOG_LINES) -> str:
        """Return the last lines that the gateways printed."""
        path = self.home / "scenario.log"
        said = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return "\n".join(said[-lines:]) or "(it printed nothing)"

    def wait(self, condition: Callable[[], bool], what: str, *, within: float | None = None) -> None:
        """Wait for a condition. The error after the time limit shows the gateway's last lines."""
        seconds = self.seconds if within is None else within
        until(
            condition, lambda: f"{what} did not happen within {seconds:g} s; the gateway said:\n{self.log()}", seconds
        )

    # -- the home --------------------------------------------------------------------------------------------------

    def _write_home(self) -> None:
        settings: Json = {
            "platforms": {self.fake.platform: {"enabled": True, **self.fake.gateway_settings()}},
            "gateway": {"owners": [f"{self.fake.platform}:{number}" for number in self._owners]},
            # On the port of another gateway it would not start, and most scenarios do not ask over HTTP.
            "api_server": {"enabled": False},
        }
        if self._server is not None and self.model is not None:
            settings["model"] = self.model.settings(self._server.origin)
        raw = yaml.safe_dump(merged(settings, self.config), allow_unicode=True, sort_keys=True)
        (self.home / "config.yaml").write_text(raw, encoding="utf-8")
        secrets = self.fake.gateway_environment(self._allowed)
        written = self.home / ".env"
        written.touch(mode=0o600)
        written.write_text("".join(f"{name}={value}\n" for name, value in secrets.items()), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "TELEGRAM_"))}
        return {**inherited, "HERMES_HOME": str(self.home), **self.environment}

    # -- as a context ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if self._home is None:
                self._home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-scenario-")))
            self._home.mkdir(mode=0o700, exist_ok=True)
            self.fake.start()
            stack.callback(self.fake.stop)
            if self.model is not None:
                self._server = stack.enter_context(self.model.served())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()
        if error is not None:
            error.add_note(f"the gateway said:\n{self.log()}")
        self._stack.__exit__(kind, error, trace)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Merge two mappings; `over` wins."""
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
