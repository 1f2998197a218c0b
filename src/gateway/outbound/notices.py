"""Notices: short messages that the gateway itself sends to a chat.

A notice goes through the outbox under a key that names its occasion, so the chat gets it once, however often the
gateway notices the occasion. A notice has one or two plain lines and says what to do next.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gateway.config import SessionResetPolicy
from hermes_config import accounts
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

if TYPE_CHECKING:
    from gateway.routes.source import SessionSource
    from hermes_config.errors import HermesError

ALWAYS_TOLD = ("suspended", "resume_pending_expired")
"""Resets that no policy asked for: the chat is always told of them."""
STEERED = "Noted: I will use this in the current task."


def new_item(
    what: str,
    occasion: object,
    text: str,
    *,
    platform: str,
    chat_id: str,
    account: str = "",
    thread_id: str | None = None,
    trace_id: str | None = None,
) -> NewOutboxItem:
    """The outbox item of a notice, such as `new_item("stale", route, …)`: sent once for each (what, occasion)."""
    return NewOutboxItem(
        dedup_key=key(what, occasion), platform=platform, account=account, chat_id=chat_id,
        payload=payload(text, "notice", thread_id=thread_id), trace_id=trace_id,
    )  # fmt: skip


def to_chat(
    what: str, occasion: object, text: str, source: SessionSource, *, account: str, trace_id: str | None = None
) -> NewOutboxItem:
    """A notice to the chat of a message."""
    return new_item(
        what, occasion, text, platform=source.platform.value, chat_id=str(source.chat_id), account=account,
        thread_id=source.thread_id, trace_id=trace_id,
    )  # fmt: skip


def payload(text: str, kind: str, **more: Any) -> dict[str, Any]:
    """The payload of an outbox item, without empty fields."""
    return {"text": text, "kind": kind, **{name: value for name, value in more.items() if value}}


def button(label: str, kind: str, number: str, choice: str) -> dict[str, Any]:
    """A button of an outbox item: what it says, and the answer that a press brings."""
    return {"label": label, "answer": {"kind": kind, "id": number, "choice": choice}}


def key(what: str, occasion: object) -> str:
    return f"notice:{what}:{occasion}"[:500]


def words(text: str) -> str:
    """The occasion of a notice that is sent once for each wording: a hash of the text."""
    return hashlib.sha256(text.encode()).hexdigest()


def reply_key(row_id: int) -> str:
    """The key of the reply to a command, by the command's inbox row."""
    return f"command:{row_id}"


def about_item(item: OutboxItem, what: str, text: str) -> NewOutboxItem:
    """A notice about an outbox item, in the item's chat."""
    thread, only_for = item.payload.get("thread_id"), item.payload.get("only_for")
    made = new_item(
        what, item.id, text, platform=item.platform, account=item.account, chat_id=item.chat_id,
        thread_id=None if thread is None else str(thread), trace_id=item.trace_id,
    )  # fmt: skip
    return replace(made, payload={**made.payload, "only_for": only_for}) if only_for else made


# -- texts ------------------------------------------------------------------------------------------------------------


def stale(count: int, *, hours: float) -> str:
    """Messages came while the gateway was down, longer ago than `gateway.max_message_age`."""
    which = "1 message" if count == 1 else f"{count} messages"
    them = "it" if count == 1 else "them"
    return (
        f"I was offline: you sent {which} more than {span(hours * 3_600)} ago, and I did not answer {them}. "
        f"/catchup answers {them} now."
    )


def reset(reason: str, policy: SessionResetPolicy) -> str:
    """The gateway started a new conversation without being asked."""
    why = {
        "idle": f"inactive for {span(policy.idle_minutes * 60)}",
        "daily": f"daily schedule at {policy.at_hour}:00",
        "suspended": "it was stopped or interrupted",
        "resume_pending_expired": "recovery after a restart timed out",
    }.get(reason, reason)
    lines = [f"Session automatically reset ({why}). History cleared; /resume brings the earlier conversation back."]
    if reason in ("idle", "daily"):
        lines.append("session_reset in config.yaml changes when this happens.")
    return "\n".join(lines)


def reset_is_told(reason: str, policy: SessionResetPolicy, *, platform: str, had_activity: bool) -> bool:
    if reason in ALWAYS_TOLD:
        return True
    return policy.notify and had_activity and not {*accounts.names(platform)} & {*policy.notify_exclude_platforms}


def busy(mode: str, *, waiting: int = 0) -> str:
    """A message came while a turn runs."""
    if mode == "interrupt":
        return "I am stopping the current task and reading your new message."
    if mode == "steer":
        return STEERED
    queue = f" ({waiting} waiting)" if waiting > 1 else ""
    return f"I am still busy; your message is next{queue}. /stop ends the current task."


def refused_full(most: int) -> str:
    return f"{most} messages of this chat are waiting, so I did not accept this one. Send it again later, or /stop."


def let_in() -> str:
    """The owner approved this person's pairing. Their earlier messages were never stored."""
    return "You now have access. I did not keep your earlier messages; please send them again."


def old_turn(seconds: float) -> str:
    """A process died long ago in the middle of a turn."""
    return (
        f"I was stopped in the middle of an answer {span(seconds)} ago, and did not continue it. The work until "
        "then is kept; /catchup continues it now."
    )


def stopping() -> str:
    """The gateway ends while a turn runs that may not end in time."""
    return "I am shutting down. If I cannot finish in a moment, I continue when I am back; nothing is lost."


def back(seconds: float) -> str:
    """The gateway continues a turn after it was down for a while."""
    return f"I was offline for {span(seconds)}, and now continue your task."


def old_command(name: str | None) -> str:
    """A command, or the press of a button, came while the gateway was down, too long ago to be run now."""
    if not name:
        return "I was offline when you answered, so your answer had no effect."
    return f"I was offline when you sent /{name}, and did not run it. Send /{name} again if you still need it."


def cut_off_command(name: str) -> str:
    """A command was running when its process died."""
    return (
        f"/{name} was running when I was restarted, and I do not know whether it finished. I did not run it again: "
        f"check the result, and send /{name} again if needed."
    )


def unknown_delivery(item: OutboxItem) -> NewOutboxItem:
    """Ask the chat whether to send an item again that may or may not have arrived."""
    asked = about_item(
        item,
        f"delivery:{item.attempts}",
        "My answer may or may not have arrived here: the connection broke while I sent it. "
        f"If you do not see it above, press Send again, or write /resend {item.id}.",
    )
    again = button("Send again", "command", str(item.id), f"/resend {item.id}")
    return replace(asked, payload={**asked.payload, "buttons": [[again]]})


def waiting(question_id: str, *, hours: float) -> str:
    """A turn was suspended because nobody has answered its question yet."""
    return (
        f"I have paused until my question is answered; it stays open for {span(hours * 3_600)}. "
        f"/approve {question_id} or /deny {question_id} continues the task. You can write about other things meanwhile."
    )


def delivery_failed(item: OutboxItem) -> NewOutboxItem:
    why = " ".join((item.error or "no reason is known").split())[:200].rstrip(".")
    text = f"My answer could not be delivered here: {why}. Ask again to get it."
    return about_item(item, f"delivery:{item.attempts}", text)


def span(seconds: float) -> str:
    """`40` → `40s`, `90` → `2m`; whole hours where they fit."""
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    minutes = max(1, round(seconds / 60))
    if minutes % 60 == 0:
        return f"{minutes // 60}h"
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def elsewhere() -> str:
    return "This conversation is in use elsewhere, such as in a terminal. Your message waits until it is free."


def heard(words: str) -> str:
    """The echo of a voice message."""
    return f"🎙 “{words}”"


def not_heard(error: HermesError) -> str:
    return f"🎙 Your voice message could not be heard: {error.in_chat()}"
