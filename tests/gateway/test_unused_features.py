"""A feature that nobody uses costs a gateway nothing: its modules are not imported, at the start or in a turn."""

from __future__ import annotations

import re
import sys

import pytest

from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.telegram.faults import OFF
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

FEATURES = {
    "delegation": {"hermes_agent.delegation"},
    "background processes": {"hermes_agent.processes", "hermes_agent.execution.background"},
    "schedules": {"cronsim", "hermes_agent.jobs_file"},
    "receipts": {"hermes_agent.receipts.receipt", "hermes_agent.receipts.replay"},
    "mcp": {"mcp", "pydantic", "hermes_agent.mcp.source", "gateway.mcp_server.tools"},
    "web": {"hermes_agent.web.client", "hermes_agent.web.pages", "hermes_agent.web.search"},
    "skills": {"hermes_agent.knowledge.skill_source"},
    "demo": {"hermes_agent.models.demo"},
}


def imported(scene: Scenario) -> set[str]:
    return set(re.findall(r"^import time:.*\| +(\S+)$", scene.log(1_000_000), re.MULTILINE))


def test_a_gateway_imports_no_feature_that_nobody_uses() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hermes_cli", "gateway", "run"]
    steps = say(calls=[call("terminal", {"command": "true"})]), say("Hello.")
    config = {"auto_title": False}
    with (
        ScriptedModel(*steps) as model,
        Scenario(FakeTelegram(flood=OFF), model, command=command, config=config) as scene,
    ):
        ada = scene.owner("ada")
        scene.start()
        ada.say("hello")
        ada.expect("Hello.")
        there = imported(scene)
        assert "hermes_agent.turn.run" in there, "the log names the modules"
        assert {name: there & modules for name, modules in FEATURES.items() if there & modules} == {}
        ada.say("/why")
        ada.expect("Details: ")
        assert "hermes_agent.receipts.receipt" in imported(scene)
