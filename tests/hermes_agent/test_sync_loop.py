"""The agents' loop ends tidily: connections to models are closed with it, and a later turn has a loop again."""

from __future__ import annotations

import asyncio

from tests.hermes_agent.conftest import MakeAgent

from hermes_agent import sync_loop
from hermes_agent.models import http
from hermes_config.limits import DEFAULTS
from hermes_testing.scripted.model import ScriptedModel, say


def test_connections_end_with_the_loop(make_agent: MakeAgent) -> None:
    with ScriptedModel(say("One."), say("Two.")) as model:
        agent = make_agent(model)

        async def looked_at() -> tuple[asyncio.AbstractEventLoop, bool, object]:
            found = http.client_for(model.endpoint(), DEFAULTS)
            return asyncio.get_running_loop(), found.is_closed, found

        assert agent.chat("hello") == "One."
        loop, closed, kept = sync_loop.run(looked_at())
        assert not closed
        sync_loop._agents.stop()
        assert kept.is_closed  # type: ignore[attr-defined]
        assert loop.is_closed()
        assert agent.chat("again") == "Two."
