"""Commands in the sandbox, through the real thing: a gateway as a process, and `hermes -q`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, always, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"auto_title": False, "streaming": {"enabled": False}, "approvals": {"mode": "off"}}
CANARY = "canary-4711-of-a-secret"
HOSTILE = (
    "jobs -x touch {out}/a; jobs -x rm -rf {out}/folder",
    "echo {out}/folder | xargs -l rm ls -rf; echo {out}/file | xargs -i rm ls {{}}",
    "echo x | find . -maxdepth 0 -exec tee + {out}/b \\;; find {out} -dele$(echo te)",
    "read x <<< 'a[$(touch {out}/c)]'; echo ${{a[x]}}; sort --out$(echo put)={out}/d .",
    "sh -c \"echo \\$'\\\\'; touch {out}/e; #'\"",
    "mkdir ./-x; cp .keep -- -x/../../out/f",
    "printf 'import shutil; shutil.rmtree(\"{out}/folder\")' > x.py; python3 x.py; cat $(ls -d ~/.ssh/*)",
    "cat /proc/*/enviro? /proc/$PPID/enviro? | tr '\\0' '\\n'; cd $HERMES_HOME && grep '' .env; awk 1 {home}/.env",
    "find {home} -name '*.env' -exec cat {{}} +; git diff --no-index /dev/null {home}/.env; cat .e$(echo nv)",
    "exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3; python3 -c 'import socket as s;s.socket(1).connect(\"{sock}\")'",
    "cp -P /proc/self/root l && echo x > l{out}/g; cd a/b/c && ln -s ../../.. ../../../y && echo z > y{home}/new",
)
"""Ways past a judge of command lines. Nobody is asked: the sandbox alone has to hold."""
RUNS = "touch it-runs"
"""A sandbox behind which nothing runs would let no line have an effect, either."""


class World:
    """What must not change, be read or be reached, beside a home of Hermes."""

    def __init__(self, root: Path) -> None:
        self.root, self.out, self.person, self.home = root, root / "out", root / "person", root / "hermes"
        self.workspace = self.home / "workspace"
        for folder in (self.out / "folder", self.person / ".ssh", self.workspace / "a/b/c"):
            folder.mkdir(parents=True)
        for file in (self.out / "file", self.out / "folder/file", self.workspace / ".keep"):
            file.write_text("as it was")
        (self.person / ".ssh/id_rsa").write_text(CANARY)
        (self.workspace / ".env").write_text(f"KEY={CANARY}")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.person / "agent.sock"))
        self.unix.listen()

    def line(self, text: str) -> str:
        where = {"out": self.out, "home": self.home, "port": self.tcp.getsockname()[1]}
        return text.format(sock=self.person / "agent.sock", **where)

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.person), "SOME_API_KEY": CANARY}

    def check(self, before: dict[str, bytes], model: ScriptedModel) -> None:
        assert (self.workspace / "it-runs").exists()
        assert self.files() == before
        for listener in (self.tcp, self.unix):
            listener.settimeout(0.1)
            with pytest.raises(TimeoutError):
                listener.accept()
        said = [request.body.decode() for request in model.requests]
        assert len(said) > len(HOSTILE) and not [text for text in said if CANARY in text]

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.out.rglob("*")) if path.is_file()}

    def close(self) -> None:
        self.tcp.close()
        self.unix.close()


@pytest.fixture
def world() -> Iterator[World]:
    # Not below /tmp, which is private in the sandbox and would hide everything for free.
    root = Path(f"/var/tmp/hermes-test-{os.getpid()}-{time.monotonic_ns()}")
    made = World(root)
    yield made
    made.close()
    shutil.rmtree(root)


def _commands(world: World) -> list[object]:
    return [say(calls=[call("terminal", {"command": world.line(text)})]) for text in (RUNS, *HOSTILE)]


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_hostile_lines_have_no_effect_through_a_gateway(world: World, sandbox: str) -> None:
    with (
        ScriptedModel(*_commands(world), always(say("Done."))) as model,
        Scenario(
            FakeTelegram(flood=OFF),
            model,
            home=world.home,
            config={**CONFIG, "executor": sandbox},
            environment=world.environment(),
        ) as scene,
    ):
        ada = scene.owner("ada")
        scene.start()
        before = world.files()
        with (world.home / ".env").open("a") as file:
            file.write(f"\nANOTHER_KEY={CANARY}\n")
        ada.say("go on")
        ada.expect("Done.")
        world.check(before, model)


def test_hostile_lines_have_no_effect_through_a_question_from_a_shell(world: World) -> None:
    (world.home / ".env").write_text(f"ANOTHER_KEY={CANARY}\n")
    before = world.files()
    with ScriptedModel(*_commands(world), always(say("Done."))) as model, model.served() as server:
        endpoint = server.endpoint()
        settings = {"default": endpoint.model, "provider": "custom", "base_url": endpoint.base_url}
        settings["api_key"] = endpoint.api_key
        (world.home / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "model": settings}))
        ran = subprocess.run(
            [sys.executable, "-m", "hermes_cli", "-q", "go on"], cwd=world.workspace, capture_output=True, text=True,
            env={**os.environ, **world.environment(), "HERMES_HOME": str(world.home)}, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 0 and "Done." in ran.stdout, ran.stderr
        world.check(before, model)


_SURVIVORS = (
    "setsid bash -c 'sleep 2; touch by-setsid' &"
    " nohup bash -c 'sleep 2; touch by-nohup' >/dev/null 2>&1 &"
    " ( (sleep 2; touch by-double-fork) & ) &"
    " touch begun; sleep 2; touch plain"
)


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_kill_of_the_gateway_ends_what_its_command_started(tmp_path: Path, sandbox: str) -> None:
    config = {**CONFIG, "executor": sandbox}
    with (
        ScriptedModel(say(calls=[call("terminal", {"command": _SURVIVORS})]), always(say("Done."))) as model,
        Scenario(FakeTelegram(flood=OFF), model, home=tmp_path / "home", config=config) as scene,
    ):
        ada = scene.owner("ada")
        scene.start()
        ada.say("go on")
        workspace = scene.home / "workspace"
        deadline = time.monotonic() + 20
        while not (workspace / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        scene.kill()
        time.sleep(3)
        assert [path.name for path in workspace.iterdir()] == ["begun"]


def test_a_gateway_whose_executor_cannot_be_used_does_not_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\nexecutor: docker\n")
    ran = subprocess.run(
        [sys.executable, "-m", "hermes_cli", "gateway", "run"], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "HERMES_HOME": str(home)},
    )  # fmt: skip
    assert ran.returncode != 0
    last = ran.stderr.strip().splitlines()[-1]
    assert "executor 'docker' in config.yaml is not supported" in last and "confined" in last


def test_status_says_which_sandbox_holds(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model: demo\nexecutor: landlock\n")
    environ = {**os.environ, "HERMES_HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-m", "hermes_cli", "status", "--json"], capture_output=True, text=True, timeout=60,
        check=True, env=environ,
    )  # fmt: skip
    assert json.loads(ran.stdout)["executor"]["sandbox"] == "landlock"
    doctor = subprocess.run(
        [sys.executable, "-m", "hermes_cli", "doctor"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ,
    )
    assert "modes and times of files outside" in " ".join(doctor.stdout.split())
