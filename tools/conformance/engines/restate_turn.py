"""The turn as a handler of a virtual object of Restate, whose key is the conversation.

`python restate_turn.py MODEL_URL FOLDER PORT` serves it to a Restate server. The server stores the request, the result
of each step, and the answer.
"""

from __future__ import annotations

import json
import sys

import hypercorn.asyncio
import restate
import uvloop
from the_turn import Model, tool

model_url, folder, port = sys.argv[1:]
model = Model(model_url, folder)
chat = restate.VirtualObject("Chat")


@chat.handler()
async def turn(ctx: restate.ObjectContext, text: str) -> str:
    said = await ctx.run_typed("first model call", model.call, number=1)
    await ctx.run_typed("tool step", tool, said=said)
    return str(json.loads(await ctx.run_typed("second model call", model.call, number=2))["text"])


if __name__ == "__main__":
    config = hypercorn.Config()
    config.bind, config.loglevel = [f"127.0.0.1:{port}"], "WARNING"
    uvloop.run(hypercorn.asyncio.serve(restate.app([chat]), config))
