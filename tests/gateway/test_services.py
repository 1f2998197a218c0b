"""A running gateway takes over a changed configuration at the next turn, as far as it can."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.services import Services


async def a_turn_begins(services: Services) -> None:
    services.refresh()


def test_one_look_at_the_files_counts_for_one_iteration_of_the_loop(services: Services, home: Path) -> None:
    home.mkdir(exist_ok=True)

    async def look() -> list[str | None]:
        before = services.latest().model.default
        (home / "config.yaml").write_text("model: another\n")
        meanwhile = services.latest().model.default
        await asyncio.sleep(0)
        return [before, meanwhile, services.latest().model.default]

    before, meanwhile, after = asyncio.run(look())
    assert meanwhile == before != after == "another"


def test_what_can_change_changes_for_everybody_and_the_rest_stays(services: Services, home: Path) -> None:
    home.mkdir(exist_ok=True)
    file, settings = home / "config.yaml", services.settings
    file.write_text(
        "busy_input_mode: queue\nsession_reset: {mode: idle}\ndrain_seconds: 5\ngroup_toolsets: [todo]\n"
        "display: {tool_preview_length: 10}\nmodel: {vision: true}\n"
    )
    asyncio.run(a_turn_begins(services))
    assert services.settings is settings is services.store.config, "one object for all parts"
    assert (settings.busy_input_mode, settings.group_toolsets) == ("queue", ("todo",))
    assert settings.get_reset_policy().mode == "idle"
    assert settings.drain_seconds == 30.0, "needs a restart"
    assert (services.config.display.tool_preview_length, services.config.model.vision) == (10, True)


@pytest.mark.parametrize("broken", ["busy_input_mode: shout\n", "busy_input_mode: [\n"])
def test_a_configuration_that_cannot_be_used_changes_nothing(
    services: Services, home: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(exist_ok=True)
    file = home / "config.yaml"
    file.write_text("busy_input_mode: queue\ndisplay: {tool_preview_length: 10}\n")
    asyncio.run(a_turn_begins(services))
    file.write_text(f"{broken}display: {{tool_preview_length: 20}}\n")
    with caplog.at_level(logging.WARNING):
        asyncio.run(a_turn_begins(services))
        asyncio.run(a_turn_begins(services))
    assert (services.settings.busy_input_mode, services.config.display.tool_preview_length) == ("queue", 10)
    told = [record.getMessage() for record in caplog.records if "the old settings stay in force" in record.getMessage()]
    assert len(told) == (1 if "shout" in broken else 0), "a file that cannot be parsed is told with the heartbeat"
