"""What the scripted model says to the clients: it goes by the person's last words."""

from __future__ import annotations

import asyncio
from collections import Counter

from hermes_testing.scripted.model import Hold, ScriptedModel, ScriptedRequest, Step, call, fail, say
from hermes_testing.scripted.server import ScriptedServer

SLOW_SECONDS = 1.2
"""Longer than the patience of a client that is to ask again."""


class Improviser:
    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        """How often the model was asked with these words."""

    def __call__(self, request: ScriptedRequest) -> Step:
        text = request.last_user_text
        self._asked[text] += 1
        if text.startswith("how often? "):
            return say(str(self._asked[text.removeprefix("how often? ")]))
        if text == "how many?":
            return say(f"{sum(message['role'] == 'user' for message in request.messages)} messages")
        if text == "the word?":
            return say("maple" if "The word is maple." in request.system else "unknown")
        if text.startswith("slowly"):
            return say("asked once" if self._asked[text] == 1 else "asked again", delay=SLOW_SECONDS)
        if text == "never end":
            return say("Once ", "upon a time.", hold=Hold())
        if text.startswith("break") and self._asked[text] == 1:
            return say("Some words ", "and more.", breaks="disconnect")
        if text.startswith(("fail", "break")):
            return fail(400, "this model does not want to")
        if text == "use a tool":
            return use_a_tool(request)
        return say("Hello ", "there.")


def use_a_tool(request: ScriptedRequest) -> Step:
    """One call of the to-do list, then the answer."""
    if request.messages[-1]["role"] == "tool":
        return say("Done.")
    return say("Looking. ", calls=[call("todo", {"todos": [{"id": "1", "content": "look", "status": "completed"}]})])


def improvised() -> ScriptedModel:
    return ScriptedModel(improvise=Improviser(), allow_rejections=True, keep=4)


async def serve() -> None:
    """The model of the durable turn, in a process of its own."""
    server = ScriptedServer(ScriptedModel(improvise=use_a_tool, context_length=100_000_000, keep=4))
    await server.start()
    print(server.origin, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
