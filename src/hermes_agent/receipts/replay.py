"""Asks another model the same turn. No tool runs: this module has no tools, only the journal of what they returned.

The model gets the prefix and the history of the turn's first request. A call that the turn made is answered with the
result that the turn got, each once and in their order; any other call is answered `NOT_EXECUTED` and counted. Nothing
is written to the conversation; the cost is counted under the task `replay`, within the spending limits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_agent import aux_calls
from hermes_agent.budget import Budget
from hermes_agent.messages import arguments_of, inner_call, step_row, text_of
from hermes_agent.models import provider_table
from hermes_agent.models.base import Endpoint, Reply, ToolCall
from hermes_agent.prompt import tokens
from hermes_agent.prompt.sent_request import NotKept, read_again
from hermes_agent.receipts.receipt import MadeCall, made_calls, written_in
from hermes_agent.turn.tool_calls import result_row

if TYPE_CHECKING:
    from hermes_agent.prompt.transcript import EncodedTranscript
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.turns.model_calls import ModelCall
    from hermes_state.turns.turns import Turn

NOT_EXECUTED = "Not executed: this is a replay, and the recorded turn did not make this call. Use what you have."
TASK = "replay"
_MORE_STEPS = 5
"""How many steps more than the recorded turn a model may take."""


@dataclass(slots=True)
class ReplaySide:
    """One model's way through the turn."""

    model: str
    provider: str
    text: str = ""
    calls: list[str] = field(default_factory=list)
    """The tool calls, by name, in order."""
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: the price of a call is not known."""
    ended: str = "answered"
    """`answered`, or why there is no answer."""


@dataclass(slots=True)
class Replay:
    recorded: ReplaySide
    replayed: ReplaySide
    from_journal: int = 0
    """Calls that were answered with a recorded result."""
    not_executed: int = 0
    """Calls that the recorded turn did not make."""
    left_out: int = 0
    """Messages of people that joined the recorded turn while it ran."""


async def replay(db: SessionDB, config: Config, turn: Turn, endpoint: Endpoint) -> Replay:
    """Raises `NotKept` when the turn's first request is not stored any more, and `ModelError`."""
    made = db.model_calls.of_turn(turn.id)
    first = next((call for call in made if call.request is not None), None)
    if first is None or first.request is None:
        raise NotKept(f"turn {turn.id} has no stored request", hint="Only turns that asked a model can be replayed.")
    transcript, ids = read_again(db, turn.conversation_id, first, endpoint)
    written = written_in(db, turn, made)
    calls = made_calls(written)
    journal = [(_key(one.call), one.content) for one in calls if one.content is not None]
    result = Replay(_recorded(written, calls, made), ReplaySide(endpoint.model, endpoint.provider))
    users = sum(row["role"] == "user" and not text_of(row["content"]).startswith("[About the call") for row in written)
    result.left_out = max(0, users - 1)
    head = max([int(first.request["head_id"]), *ids])
    for _ in range(len(made) + _MORE_STEPS):
        reply = await _ask(db, config, turn, endpoint, transcript, result.replayed)
        if not reply.tool_calls:
            result.replayed.text = (reply.content or "").strip()
            return result
        new = [
            step_row(reply, db.clock()),
            *(_answered(inner_call(call), journal, result, db.clock()) for call in reply.tool_calls),
        ]
        transcript.append(new, range(head + 1, head + 1 + len(new)))
        head += len(new)
    result.replayed.ended = "stopped: it took more steps than the recorded turn allows"
    return result


async def _ask(
    db: SessionDB, config: Config, turn: Turn, endpoint: Endpoint, transcript: EncodedTranscript, side: ReplaySide
) -> Reply:
    body, wire = transcript.body(endpoint), provider_table.wire_for(endpoint)
    address = db.inbox.address(turn.id)
    reply, cost = await aux_calls.send(
        db, Budget(db, config), endpoint,
        lambda most: body.content if most is None else body.ended(wire.ending(endpoint, most)),
        estimated=tokens.estimate(body.weight, endpoint.model), most_input=body.most_tokens, longest=None,
        conversation_id=turn.conversation_id, session_id=turn.session_id,
        person_id=None if address is None else address.person_id, task=TASK, max_retries=config.agent.api_max_retries,
        limits=config.limits,
    )  # fmt: skip
    side.model_calls += 1
    side.calls += [inner_call(call).name for call in reply.tool_calls]
    if reply.usage is not None:
        side.input_tokens += reply.usage.input_tokens
        side.output_tokens += reply.usage.output_tokens
    side.cost_usd = None if cost is None or side.cost_usd is None else side.cost_usd + cost
    return reply


def _answered(call: ToolCall, journal: list[tuple[tuple[str, str], Any]], result: Replay, now: float) -> dict[str, Any]:
    """The result of a call: the recorded one, which is then used up with all before it; else `NOT_EXECUTED`."""
    at = next((index for index, (made, _) in enumerate(journal) if made == _key(call)), None)
    if at is None:
        result.not_executed += 1
        content: Any = NOT_EXECUTED
    else:
        result.from_journal += 1
        content = journal[at][1]
        del journal[: at + 1]
    return result_row(call, content, now)


# -- the recorded turn -------------------------------------------------------------------------------------------


def _key(call: ToolCall) -> tuple[str, str]:
    """Name and arguments; the order of keys and the spaces of the JSON do not matter."""
    return call.name, json.dumps(arguments_of(call), sort_keys=True)


def _recorded(written: list[dict[str, Any]], calls: Sequence[MadeCall], made: tuple[ModelCall, ...]) -> ReplaySide:
    own = [call for call in made if not call.task]
    answers = [row for row in written if row["role"] == "assistant" and not row["tool_calls"]]
    costs = [call.cost_usd for call in own if call.sha256]
    return ReplaySide(
        own[-1].model, own[-1].provider, text_of(answers[-1]["content"]).strip() if answers else "",
        [one.call.name for one in calls], len(own), sum(call.input_tokens or 0 for call in own),
        sum(call.output_tokens or 0 for call in own), None if None in costs else sum(cost or 0 for cost in costs),
        "answered" if answers else "no answer",
    )  # fmt: skip
