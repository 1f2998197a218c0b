"""Background processes through the real thing: a gateway as a process, a fake Telegram, restarts and losses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from hermes_testing.scenario import GATEWAY, Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say, saying
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

CONFIG = {"auto_title": False, "streaming": {"enabled": False}, "approvals": {"mode": "off"}}
BUILD = "until [ -e go ]; do echo step $((i+=1)); sleep 0.1; done; echo built; exit 4"
BEAT = "while :; do echo $((n+=1)) > beat; sleep 0.05; done"


def model_for(command: str) -> ScriptedModel:
    return ScriptedModel(
        say(calls=[call("terminal", {"command": command, "background": True})]),
        say("It has begun."),
        say("I was told of the end.", when=saying("[Background process")),
    )


def begun(scene: Scenario, ada: FakePerson) -> dict[str, Any]:
    """Ask for the command, and wait until it runs; its row."""
    ada.say("build it")
    ada.expect("It has begun.")
    (row,) = processes(scene, "--running")
    return row


def processes(scene: Scenario, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(scene.hermes("process", "list", "--json", *options))["processes"]
    return found


def heard(ada: FakePerson, words: str) -> int:
    return sum(words in one.text for one in ada.messages())


def expect_still(beat: Path) -> None:
    """Wait until the process that beats there has ended."""
    deadline = time.monotonic() + 15
    seen, now = "", beat.read_text()
    while seen != now:
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.7)
        seen, now = now, beat.read_text()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_build_goes_on_while_the_gateway_is_restarted_twice(sandbox: str, pytestconfig: pytest.Config) -> None:
    """In full (`--long`): a build of three minutes."""
    third = 60 if pytestconfig.getoption("--long") else 0.5
    with (
        model_for(BUILD) as model,
        Scenario(FakeTelegram(flood=OFF), model, config={**CONFIG, "executor": sandbox}) as scene,
    ):
        ada = scene.owner("ada")
        scene.start()
        row = begun(scene, ada)
        assert f"(runs in the background as {row['id']}, in the sandbox)" in scene.hermes("turns", "show", "last")
        time.sleep(third)
        scene.kill()
        time.sleep(third)
        scene.start()
        assert scene.stop() == 0  # a gateway that ends in order does not wait for it
        scene.start()
        assert [one["id"] for one in processes(scene, "--running")] == [row["id"]]
        time.sleep(third)
        (scene.home / "workspace" / "go").touch()
        ada.expect("I was told of the end.")
        scene.restart()
        (row,) = processes(scene)
        assert (row["state"], row["exit_code"], row["sandbox"]) == ("exited", 4, sandbox)
        *steps, last = scene.hermes("process", "log", row["id"]).splitlines()
        assert steps == [f"step {i}" for i in range(1, len(steps) + 1)] and len(steps) > 20 and last == "built"
        assert heard(ada, "I was told of the end.") == 1
        told = model.requests[-1].last_user_text
        assert f"[Background process {row['id']}: exit code 4, after " in told and told.endswith("built")
        print(f"{sandbox}: {told.splitlines()[0]} {len(steps)} lines of output, told once")


@pytest.mark.needs_bubblewrap
def test_a_process_that_cannot_outlive_its_container_is_lost_and_that_is_told_once() -> None:
    """The gateway is the first process of its own process namespace, as in a container: all others end with it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    inside = ["unshare", *user, "--pid", "--fork", "--kill-child", "--mount-proc", *GATEWAY]
    config = {**CONFIG, "executor": "landlock"}
    with model_for(BEAT) as model, Scenario(FakeTelegram(flood=OFF), model, config=config, command=inside) as scene:
        ada = scene.owner("ada")
        scene.start()
        begun(scene, ada)
        scene.kill()
        expect_still(scene.home / "workspace" / "beat")
        scene.start()
        ada.expect("I was told of the end.")
        with contextlib.closing(SessionDB(scene.home / "state.db")) as db:
            scene.wait(lambda: db.outbox.counts() == {"sent": 2}, "the record of the delivery")
        scene.kill()
        scene.start()
        (row,) = processes(scene)
        assert row["state"] == "lost" and heard(ada, "I was told of the end.") == 1
        assert ": lost: its supervisor ended without a report" in model.requests[-1].last_user_text


def test_a_chat_that_began_another_conversation_is_told_without_a_turn_there() -> None:
    command = "until [ -e go ]; do sleep 0.1; done; echo built"
    start = say(calls=[call("terminal", {"command": command, "background": True})])
    with (
        ScriptedModel(start, say("It has begun.")) as model,
        Scenario(FakeTelegram(flood=OFF), model, config=CONFIG) as scene,
    ):
        ada = scene.owner("ada")
        scene.start()
        row = begun(scene, ada)
        ada.say("/new")
        ada.expect("rocess")
        asked = len(model.requests)
        (scene.home / "workspace" / "go").touch()
        ada.expect("which this chat has left")
        told = ada.messages()[-1].text
        assert told.startswith("For the conversation “") and f"{row['id']}: exit code 0" in told
        assert "built" in told and len(model.requests) == asked


def test_a_killed_supervisor_is_noticed_while_the_gateway_runs() -> None:
    with model_for(BEAT) as model, Scenario(FakeTelegram(flood=OFF), model, config=CONFIG) as scene:
        ada = scene.owner("ada")
        scene.start()
        row = begun(scene, ada)
        os.kill(int(row["supervisor"].partition("/")[0]), signal.SIGKILL)
        ada.expect("I was told of the end.")
        assert processes(scene)[0]["state"] == "lost"
        expect_still(scene.home / "workspace" / "beat")


def test_people_see_and_end_them_in_the_chat() -> None:
    with ScriptedModel(
        *[step for text in ("first", "second") for step in (
            say(calls=[call("terminal", {"command": f"echo {text}; {BEAT}", "background": True})]),
            say("It has begun."),
        )],
    ) as model, Scenario(FakeTelegram(flood=OFF), model, config=CONFIG) as scene:  # fmt: skip
        ada = scene.owner("ada")
        scene.start()
        row = begun(scene, ada)
        ada.say("/processes")
        assert row["id"] in ada.expect("running").text
        ada.say("/stop")
        ada.expect("1 background process keeps running: /stop all ends it.")
        ada.say("/stop all")
        ada.expect(f"Ended: {row['id']}")
        expect_still(scene.home / "workspace" / "beat")
        ada.say("build it again")
        scene.wait(lambda: heard(ada, "It has begun.") == 2, "the second one")
        (row,) = processes(scene, "--running")
        ada.say("/new")
        ada.expect(f"Background processes of the old one keep running: {row['id']}.")
        assert re.search(r"killed", scene.hermes("process", "kill", row["id"][:9]))
        assert "None runs." in scene.hermes("process", "list", "--running")
        shown = scene.hermes("process", "show", row["id"])
        assert "second" in shown and "killed" in shown
        time.sleep(1.5)
        assert [one["state"] for one in processes(scene)] == ["killed", "killed"] and len(model.requests) == 4
