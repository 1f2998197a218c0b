"""Worker: ADDRESS ORIGIN CALLS. Makes so many calls to a model at once, each through the budget, and says what became
of each."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.support.processes import say, wait_for_go

from hermes_agent.budget import Budget
from hermes_agent.models import call, http
from hermes_agent.models.base import Endpoint, ModelError
from hermes_agent.models.provider_table import wire_for
from hermes_config import config
from hermes_state.ids import ConversationId, PersonId
from hermes_state.session_db import SessionDB


async def spend(budget: Budget, endpoint: Endpoint, number: int) -> str:
    wire = wire_for(endpoint)
    said = wire.fragments([{"role": "user", "content": f"call {number}"}])
    body = wire.join(wire.head(endpoint, "", ()), said, wire.ending(endpoint))
    try:
        reservation = await budget.reserve(
            endpoint, estimated_input=1_000, conversation_id=ConversationId(f"{os.getpid()}-{number}"),
            person_id=PersonId(f"p{number % 3}"),
        )  # fmt: skip
    except ModelError as error:
        return f"refused {error.kind} {error.one_line()}"
    reply = await call.call(endpoint, body)
    return f"made {await budget.settle(reservation, reply.usage)}"


async def main(address: str, origin: str, calls: int) -> None:
    db = SessionDB(address)
    budget = Budget(db, config.load())
    endpoint = Endpoint("custom", "chat", f"{origin}/v1", "scripted-1", api_key="scripted-key", max_tokens=100)
    say("ready")
    await asyncio.to_thread(wait_for_go)
    for outcome in await asyncio.gather(*(spend(budget, endpoint, number) for number in range(calls))):
        say(outcome)
    await http.close_clients()
    db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
