"""The commands that only chats have, and those that chats answer in their own way.

The others stand in `hermes_agent.command_set` and are the same everywhere.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway import beside, notices
from gateway.desk import ChatDesk
from gateway.reset import zone_of
from hermes_agent.commands import about, lookup, registry, turns
from hermes_agent.commands.base import CommandContext, SlashCommand, Surface
from hermes_agent.text import columns, counted

if TYPE_CHECKING:
    from hermes_state.inbox import InboxRow

CHATS: frozenset[Surface] = frozenset({"gateway", "api"})
NOT_WAITING = frozenset({"stop", "approve", "deny", "status", "queue", "steer", "help", "commands", "new", "usage"})
"""What does not wait behind a running turn: it is about that turn, or only looks."""

_ANOTHERS = "What runs here was asked for by somebody else. They can stop it, or an admin; or wait until it is done."


def _desk(ctx: CommandContext) -> ChatDesk:
    assert isinstance(ctx, ChatDesk), "these rows are for chats"
    return ctx


async def stop(ctx: CommandContext, args: str) -> str:
    """In a room nobody stops what another asked for, but for those who run the place. What waited is told of."""
    desk = _desk(ctx)
    if desk.is_anothers:
        return _ANOTHERS
    dropped = await desk.drop("stopped by the person")
    said = await turns.stop(ctx, args)
    return f"{said}\n{_not_answered(dropped)}" if dropped else said


async def new(ctx: CommandContext, args: str) -> str:
    """A new conversation; what waited to be read belongs to the old one."""
    desk = _desk(ctx)
    if desk.is_anothers:
        return _ANOTHERS
    dropped = await desk.drop("/new: a new conversation was begun")
    said = await desk.begin_anew(args)
    return f"{said}\n{_not_answered(dropped)}" if dropped else said


def _not_answered(dropped: int) -> str:
    return f"{counted(dropped, 'message')} that waited will not be answered."


async def status(ctx: CommandContext, args: str) -> str:
    """What runs since when and what waits; then the conversation, its tokens and cost."""
    desk = _desk(ctx)
    turn, waiting = desk.lanes.running(desk.route), desk.lanes.waiting(desk.route)
    doing = "none running" if turn is None else f"running for {_span(time.monotonic() - turn.since)}"
    rows = [("turn", doing), ("waiting", counted(waiting, "message") if waiting else "nothing")]
    rows += await about.standing(ctx)
    session_id = await lookup.here(ctx)
    return columns(rows if session_id is None else rows + await asyncio.to_thread(about.used, ctx, session_id))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


async def queue(ctx: CommandContext, args: str) -> str:
    """A message that waits its turn, whatever the busy mode."""
    desk = _desk(ctx)
    if not args:
        return f"{counted(desk.lanes.waiting(desk.route), 'message')} waiting. /queue TEXT adds one."
    if refused := _no_room(desk):
        return refused
    desk.lanes.put(await _as_message(desk, args), wait=True)
    return "It is next when I am done." if desk.busy else "I begin with it."


async def steer(ctx: CommandContext, args: str) -> str:
    """A word for the turn that runs."""
    desk = _desk(ctx)
    if not args:
        return "/steer TEXT gives me a word for what I am doing now."
    if refused := _no_room(desk):
        return refused
    row, turn = await _as_message(desk, args), desk.lanes.running(desk.route)
    if turn is not None and turn.person_id == row.person_id and desk.lanes.steer(row):
        return "Noted: I take this into account in what I am doing now."
    desk.lanes.put(row, wait=True)
    return "Nothing runs that could take it in; it is a message of its own."


def _no_room(desk: ChatDesk) -> str:
    """These commands get into a full queue; the message they bring does not."""
    waiting = desk.lanes.waiting(desk.route)
    return notices.refused_full(waiting) if waiting >= desk.db.limits.queued_messages else ""


async def _as_message(desk: ChatDesk, text: str) -> InboxRow:
    """What follows the command, as a message of its own; asked twice, it is the same one."""
    row = desk.row
    payload = {**(row.payload or {}), "text": text, "type": "text"}
    accepted = await desk.db.inbox.aaccept(
        platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=beside.brought(row),
        version=row.version, route=desk.route, payload=payload, person_id=row.person_id, trace_id=row.trace_id,
    )  # fmt: skip
    return accepted.row


async def catchup(ctx: CommandContext, args: str) -> str:
    """Answer what came while nobody was here."""
    desk = _desk(ctx)
    count = await desk.lanes.catch_up(desk.route)
    return f"I answer {counted(count, 'message')} now." if count else "There is nothing to catch up on."


async def approve(ctx: CommandContext, args: str) -> str:
    """Give permission: `/approve`, `/approve ID task`, `/approve ID 3 times`, `/approve ID until 18:00`."""
    desk = _desk(ctx)
    named = next((word for word in args.split() if word.startswith("ask_")), "")
    wish = " ".join(word for word in args.split() if word != named).lower()
    answer = _yes(wish, desk)
    if answer is None:
        return "/approve [ID] [task|once|conversation|always|N times|until HH:MM]"
    if answer["choice"] == "always" and not named:
        return "For always, press the button or name the question: /approve ID always"
    if not named:
        meant = await desk.approver.meant_by(desk.sender, desk.row)
        if not meant.question_id:
            return f"Nothing was decided: {meant.why_not}."
        named = meant.question_id
    return await desk.approver.decide(desk.sender, named, **answer)


def _yes(wish: str, desk: ChatDesk) -> dict[str, Any] | None:
    """The words behind /approve as what `decide` takes; None for words that mean nothing."""
    if wish in _ALLOWING:
        return {"choice": _ALLOWING[wish]}
    if times := re.fullmatch(r"([1-9]\d{0,2}) times?|([1-9]\d{0,2})x?", wish):
        uses = int(times[1] or times[2])
        return {"choice": "session", "uses": uses, "reason": counted(uses, "time")}
    if clock := re.fullmatch(r"until ([01]?\d|2[0-3])[:.]([0-5]\d)", wish):
        now = datetime.fromtimestamp(desk.db.clock(), tz=zone_of(desk.person.zone))
        end = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        end = end if end > now else end + timedelta(days=1)
        return {"choice": "session", "until": end.timestamp(), "reason": f"until {end:%H:%M}"}
    return None


async def deny(ctx: CommandContext, args: str) -> str:
    """Say no, and perhaps why. A no needs no certainty about what was read, only about which question is meant."""
    desk = _desk(ctx)
    first, _, rest = args.partition(" ")
    if first.startswith("ask_"):
        return await desk.approver.decide(desk.sender, first, "deny", reason=rest)
    meant = await desk.approver.meant_by(desk.sender, desk.row)
    waiting = await desk.approver.open_for(desk.sender)
    number = meant.question_id or (waiting[0].id if len(waiting) == 1 else "")
    if not number:
        return f"Nothing was decided: {meant.why_not}."
    return await desk.approver.decide(desk.sender, number, "deny", reason=args)


async def start(ctx: CommandContext, args: str) -> str:
    """What Telegram sends when somebody opens the chat for the first time."""
    name = " ".join((ctx.person.display_name or "").split())[:40]
    return f"Hello{f', {name}' if name else ''}. Write to me as you would to a person. /help lists my commands."


async def every(ctx: CommandContext, args: str) -> str:
    return registry.help_text(ctx.surface, role=ctx.person.role)


# fmt: off
_ALLOWING = {
    "": "once", "once": "once", "task": "task", "session": "session", "conversation": "session", "always": "always",
}  # fmt: skip

ROWS = (
    SlashCommand(
        name="new",
        category="Conversation",
        handler=new,
        aliases=("reset",),
        args_hint="[title]",
        surfaces=CHATS,
        description="start a new conversation",
    ),
    SlashCommand(name="stop", category="Turns", handler=stop, surfaces=CHATS, description="interrupt what is running"),
    SlashCommand(
        name="status", category="About", handler=status, surfaces=CHATS, description="where this conversation stands"
    ),
    SlashCommand(
        name="queue",
        category="Turns",
        handler=queue,
        aliases=("q",),
        args_hint="TEXT",
        surfaces=CHATS,
        description="a message that waits until I am done",
    ),
    SlashCommand(
        name="steer",
        category="Turns",
        handler=steer,
        args_hint="TEXT",
        surfaces=CHATS,
        description="a word for what I am doing now",
    ),
    SlashCommand(
        name="catchup",
        category="Turns",
        handler=catchup,
        surfaces=CHATS,
        description="answer what came while I was away",
    ),
    SlashCommand(
        name="approve",
        category="Turns",
        handler=approve,
        args_hint="[id] [task|once|conversation|always|N times|until HH:MM]",
        surfaces=CHATS,
        description="allow what I asked about",
        private=True,
    ),
    SlashCommand(
        name="deny",
        category="Turns",
        handler=deny,
        args_hint="[id] [why]",
        surfaces=CHATS,
        description="forbid what I asked about",
        private=True,
    ),
    SlashCommand(name="start", category="About", handler=start, surfaces=CHATS, description="say hello"),
    SlashCommand(name="commands", category="About", handler=every, surfaces=CHATS, description="all commands"),
)
# fmt: on

registry.add(*ROWS)
