"""The runner of scenarios, with a gateway of forty lines as the child."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from pathlib import Path

import pytest

from hermes_testing.scenario import Scenario, merged
from hermes_testing.scripted.model import ScriptedModel, say, saying
from hermes_testing.telegram.faults import Fault
from hermes_testing.telegram.server import FakeTelegram

COMMAND = (sys.executable, str(Path(__file__).with_name("plain_bot.py")))


def test_a_scenario_from_hello_to_kill_and_restart() -> None:
    model = ScriptedModel(
        say("Hello, Ada", when=saying("hello")), say("Too late", delay=30, when=saying("story")), say("Still here")
    )
    with Scenario(FakeTelegram(), model, command=COMMAND) as scene:
        ada, mallory = scene.owner("ada"), scene.stranger("mallory")
        scene.start()
        first = scene.pid
        ada.say("hello")
        ada.expect("Hello, Ada")
        asked = mallory.say("let me in")
        mallory.expect_silence(0.2, after=asked.message)
        asked = ada.say("a story")
        scene.wait(lambda: model.calls == 2, "the story")
        scene.kill()
        assert not scene.running
        scene.start()
        assert (scene.starts, scene.pid != first) == (2, True)
        ada.expect_silence(0.2, after=asked.message)  # this little gateway forgets what it was doing
        ada.say("and now?")
        assert ada.expect("Still here").edits == 0
        assert scene.stop() != 0
    assert not scene.running


def test_the_fake_can_be_made_to_fail_under_a_gateway() -> None:
    fake = FakeTelegram(faults=[Fault("drop_after", method="sendMessage", times=1)])
    with Scenario(fake, ScriptedModel(say("arrived, unknown to the gateway")), command=COMMAND) as scene:
        ada = scene.member("ada")
        scene.start()
        ada.say("hello")
        ada.expect("arrived")
        scene.wait(lambda: not scene.running, "the end of a gateway that does not expect this")
        assert "NetworkError" in scene.log(60)


def test_a_gateway_that_does_not_start_says_why() -> None:
    wrong = pytest.raises(AssertionError, match=r"ended at once:\nthe configuration is no good")
    with Scenario(FakeTelegram(), command=(*COMMAND, "--break")) as scene, wrong:
        scene.start()


def test_every_wait_has_an_end_and_shows_the_chat() -> None:
    with pytest.raises(AssertionError) as caught, Scenario(FakeTelegram(), command=COMMAND) as scene:
        ada = scene.owner("ada")
        ada.say("is anybody there?")
        ada.expect("yes", within=0.2)
    assert "did not say 'yes' within 0.2 s" in str(caught.value)
    assert "Ada: is anybody there?" in str(caught.value)
    assert "the gateway said:" in "".join(caught.value.__notes__)


def test_settings_are_laid_over_the_written_ones(tmp_path: Path) -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 3}, "d": [2]}) == {"a": {"b": 1, "c": 3}, "d": [2]}
    model = ScriptedModel(say("hi"))
    with Scenario(FakeTelegram(), model, command=COMMAND, home=tmp_path, config={"timezone": "Asia/Tokyo"}) as scene:
        scene.owner("ada", number=42).say("hello")
        scene.start()
        scene.fake.person("ada").expect("hi")
    config = (tmp_path / "config.yaml").read_text()
    assert "timezone: Asia/Tokyo" in config
    assert "- telegram:42" in config
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


# -- the page about it ---------------------------------------------------------------------------------------------

_PAGE = Path(__file__).parents[2] / "docs" / "contributors" / "fakes.md"
_BLOCKS = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", _BLOCKS, ids=range(len(_BLOCKS)))
def test_what_the_page_shows_works(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_testing.scenario.GATEWAY", COMMAND)

    async def shown() -> None:
        outcome = eval(compile(block, str(_PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})
        if inspect.isawaitable(outcome):
            await outcome

    asyncio.run(shown())
    assert len(_BLOCKS) == 4
