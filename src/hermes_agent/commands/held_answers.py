"""/hold and /held: chats whose answers wait for the owner, and decisions about such answers.

At a terminal sits the owner; in a chat `gateway.chat.cards` checks who may decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.commands.base import CommandContext
from hermes_agent.text import brief

if TYPE_CHECKING:
    from hermes_state.turns.held_answers import HeldChoice, HeldDecision
    from hermes_state.turns.outbox import OutboxItem

USAGE = "/held send NUMBER, /held edit NUMBER TEXT or /held drop NUMBER. /hold lists what waits."
CHOICES: dict[str, HeldChoice] = {"send": "send", "edit": "edit", "drop": "drop"}
_DID = {"send": "sent", "edit": "changed and sent", "drop": "not sent: dropped"}
_DONE = {"sent": "It is being sent.", "edited": "Your text is being sent.", "dropped": "Dropped."}
_BEGINNING = 60


def hold(ctx: CommandContext, args: str) -> str:
    """Hold the answers to a chat until the owner sends them; without words, say which chats are held."""
    words, here, answers = args.split(), ctx.address, ctx.db.held_answers
    if words and words[0].lower() in ("on", "off"):
        named = words[1] if len(words) > 1 else "" if here is None else f"{here.platform}:{here.chat_id}"
        platform, _, chat_id = named.partition(":")
        if not platform or not chat_id:
            end = "" if here is None else " /hold on without a name holds this one."
            return f"Name the chat: /hold {words[0].lower()} PLATFORM:CHAT.{end}"
        on = words[0].lower() == "on"
        answers.hold_chat(platform.lower(), chat_id, on, by=ctx.person.id)
        now = "wait until you send them" if on else "are sent at once again; those that wait stay until you decide"
        return f"From now on, answers to {platform.lower()}:{chat_id} {now}."
    if words:
        return "/hold on PLATFORM:CHAT or /hold off PLATFORM:CHAT; in a chat, without a name, that chat."
    listed = _listed(ctx.config.tree)
    lines = [f"held by delivery.hold: {', '.join(listed)}"] if listed else []
    lines += [f"{'held' if held else 'not held'} by /hold: {name}:{chat}" for name, chat, held in answers.chats()]
    lines += [_waiting(item, private=ctx.private) for item in answers.list()]
    return "\n".join(lines) or "No chat is held: answers are sent at once. /hold on PLATFORM:CHAT holds one."


def _listed(tree: Mapping[str, Any]) -> list[str]:
    """The setting `delivery.hold`, which may also stand under `gateway`."""
    for place in (tree, tree.get("gateway")):
        section = place.get("delivery") if isinstance(place, Mapping) else None
        if isinstance(section, Mapping) and (chats := section.get("hold")):
            return [str(chat) for chat in ([chats] if isinstance(chats, str) else chats)]
    return []


def _waiting(item: OutboxItem, *, private: bool) -> str:
    text = str(item.payload.get("text") or "")
    begins = f": “{brief(text, _BEGINNING)}”" if private and text else ""
    return f"answer {item.id} waits, for {item.platform}:{item.chat_id}{begins}"


def held(ctx: CommandContext, args: str) -> str:
    """Send, change or drop an answer that is held, at a terminal."""
    choice, number, text = (*args.split(maxsplit=2), "", "", "")[:3]
    wanted = CHOICES.get(choice)
    if wanted is None or not number or (wanted == "edit" and not text):
        return USAGE
    if not (number.isascii() and number.isdecimal()) or len(number) > 15:
        return f"There is no held answer {brief(number, 20)}."
    by = brief(ctx.person.display_name or "the owner", 40)
    return said(ctx.db.held_answers.decide(int(number), wanted, by=by, text=text), int(number))


def said(done: HeldDecision, number: int) -> str:
    """A decision's outcome in one sentence, for a chat or a terminal."""
    if done.outcome == "older first":
        return f"An older answer to that chat is still held: decide about {done.older} first."
    if done.outcome == "is a file":
        return f"{number} is a file, which cannot be changed: send or drop it."
    if done.outcome != "not held":
        return _DONE[done.outcome] + (
            "" if done.outcome == "sent" else " The model learns of it with the next message."
        )
    if done.item is None:
        return f"There is no held answer {number}."
    return f"It was already decided: {decided(done.item)}."


def decided(item: OutboxItem) -> str:
    """What was done with an answer that had been held, and by whom."""
    kept = item.payload.get("held") or {}
    return f"{_DID.get(str(kept.get('did')), item.state)} by {kept.get('by') or 'somebody'}" if kept else item.state
