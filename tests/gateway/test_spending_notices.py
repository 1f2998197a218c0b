"""A chat is told what the person must know of the spending, and of an answer that broke off only the whole one."""

from __future__ import annotations

import pytest

from hermes_agent.models.base import TokenUsage
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, say
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow


def test_an_answer_that_breaks_off_is_whole_in_the_end_and_a_limit_is_told_once() -> None:
    broken = say("It was a dark and stormy night. ", "The rain", breaks="disconnect", break_after=1)
    usage = TokenUsage(input_tokens=170_000, output_tokens=10)
    config = {"budget": {"month": {"tokens": 400_000}}, "auto_title": False, "limits": {"budget_warning_percent": 40}}
    with Scenario(FakeTelegram(), ScriptedModel(broken, say("It was noon.", usage=usage)), config=config) as scene:
        ada = scene.owner("ada")
        scene.start()
        ada.say("tell me")
        said = ada.expect("budget.month.tokens").text
        (shown,) = [message.text for message in ada.replies() if "It was" in message.text]
    assert said == shown and said.startswith("It was noon.\n\n(")
    assert "of this month's spending limit is used" in said and "dark and stormy" not in said
