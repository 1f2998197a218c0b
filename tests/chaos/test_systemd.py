"""A gateway as a service of a real systemd: what a restart of the service does to background processes.

systemd is the first process of namespaces of its own here, with a control group of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_testing.scenario import GATEWAY, Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say, saying
from hermes_testing.telegram.server import FakeTelegram

SYSTEMD = Path("/lib/systemd/systemd")
GROUPS = next((path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if
               (path / "cgroup.procs").exists()), None)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not SYSTEMD.exists() or GROUPS is None,
        reason="needs root, systemd and control groups of version 2",
    ),
]

INIT = """set -e
echo $$ > {group}/cgroup.procs
exec unshare --pid --fork --kill-child --mount --cgroup --uts --ipc sh -c '
    mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run
    umount -R /sys/fs/cgroup 2>/dev/null || umount -l /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup && mkdir -p /run/systemd/system
    cp {units}/* /run/systemd/system/
    container=test exec {systemd} --system --unit=hermes.target --log-target=null'
"""
TARGET = "[Unit]\nDefaultDependencies=no\nRequires=hermes.service\n"
SERVICE = """[Unit]
DefaultDependencies=no
[Service]
ExecStart={command}
EnvironmentFile={environment}
StandardOutput=append:{log}
StandardError=append:{log}
"""
BUILD = "until [ -e go ]; do echo step $((i+=1)); sleep 0.1; done; echo built; exit 4"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Path]:
    """The folder of the units of a systemd; its control group is removed afterwards."""
    assert GROUPS is not None
    group = GROUPS / f"hermes-test-{os.getpid()}"
    group.mkdir()
    (tmp_path / "units").mkdir()
    (tmp_path / "init").write_text(INIT.format(group=group, units=tmp_path / "units", systemd=SYSTEMD))
    yield tmp_path
    for _ in range(50):
        subprocess.run(
            ["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], capture_output=True, check=False
        )
        if not group.exists():
            return
        time.sleep(0.1)
    raise AssertionError("the control group is not empty")


def systemctl(scene: Scenario, *words: str) -> None:
    """`systemctl` inside."""
    first = Path(f"/proc/{scene.pid}/task/{scene.pid}/children").read_text().split()[0]
    inside = ["nsenter", "-t", first, "--pid", "--mount", "--cgroup", "--uts", "--ipc", "systemctl", *words]
    subprocess.run(inside, check=True, timeout=60)


@pytest.mark.parametrize("scopes", [True, False])
def test_a_background_process_outlives_its_service_only_in_a_scope_of_its_own(service: Path, scopes: bool) -> None:
    model = ScriptedModel(
        say(calls=[call("terminal", {"command": BUILD, "background": True})]), say("It has begun."),
        say("I was told of the end.", when=saying("[Background process")),
    )  # fmt: skip
    config = {"auto_title": False, "streaming": {"enabled": False}, "executor": "landlock"}
    with model, Scenario(FakeTelegram(), model, config=config, command=["sh", str(service / "init")]) as scene:
        ada = scene.owner("ada")
        folders = [Path(sys.executable).parent, *map(Path, os.environ["PATH"].split(os.pathsep))]
        if not scopes:  # a machine without systemd-run
            (service / "bin").mkdir()
            for program in Path("/usr/bin").iterdir():
                if program.name != "systemd-run":
                    (service / "bin" / program.name).symlink_to(program)
            folders = [service / "bin", Path(sys.executable).parent]
        environment = {**scene._environment(), "PATH": os.pathsep.join(map(str, folders))}
        plain = {name: value for name, value in environment.items() if "\n" not in value}
        (service / "env").write_text("".join(f'{name}="{value}"\n' for name, value in plain.items()))
        (service / "units/hermes.target").write_text(TARGET)
        (service / "units/hermes.service").write_text(
            SERVICE.format(command=" ".join(GATEWAY), environment=service / "env", log=scene.home / "scenario.log")
        )
        scene.start()
        ada.say("build it")
        ada.expect("It has begun.")
        systemctl(scene, "restart", "hermes.service")
        systemctl(scene, "kill", "--signal=KILL", "hermes.service")
        systemctl(scene, "restart", "hermes.service")
        (scene.home / "workspace" / "go").touch()
        ada.expect("I was told of the end.")
        (row,) = json.loads(scene.hermes("process", "list", "--json"))["processes"]
        assert (row["state"], row["exit_code"]) == (("exited", 4) if scopes else ("lost", None))
        *steps, last = scene.hermes("process", "log", row["id"]).splitlines()
        assert steps == [f"step {i}" for i in range(1, len(steps) + 1)] and (last == "built") == scopes
        assert sum("I was told of the end." in one.text for one in ada.messages()) == 1
