"""What the gateway itself says in a chat, and the parcels that carry it.

A notice goes through the outbox like everything else, under a key that names its occasion, so that it is said once
however often the occasion is noticed. The texts are plain, one or two lines, and say what to do.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from gateway.config import SessionResetPolicy
from hermes_state.turns.outbox import OutboxItem, Parcel

ALWAYS_TOLD = ("suspended", "resume_pending_expired")
"""Resets that are not a person's rule: they are told whatever the policy says."""


def parcel(
    what: str,
    occasion: object,
    text: str,
    *,
    platform: str,
    chat_id: str,
    account: str = "",
    thread_id: str | None = None,
    trace_id: str | None = None,
) -> Parcel:
    """`parcel("stale", route, …)`: said once for each (what, occasion)."""
    return Parcel(
        dedup_key=key(what, occasion), platform=platform, account=account, chat_id=chat_id,
        payload=payload(text, "notice", thread_id=thread_id), trace_id=trace_id,
    )  # fmt: skip


def payload(text: str, kind: str, **more: Any) -> dict[str, Any]:
    """Something to say, as the outbox keeps it: without what is empty."""
    return {"text": text, "kind": kind, **{name: value for name, value in more.items() if value}}


def key(what: str, occasion: object) -> str:
    return f"notice:{what}:{occasion}"[:500]


def words(text: str) -> str:
    """The occasion of what is said once in these very words: whoever knows them finds where they were said."""
    return hashlib.sha256(text.encode()).hexdigest()


def reply_key(row_id: int) -> str:
    """Of the reply to a command, which is a row of the inbox."""
    return f"command:{row_id}"


def about_item(item: OutboxItem, what: str, text: str) -> Parcel:
    """A notice in the chat of an item, about it."""
    thread = item.payload.get("thread_id")
    return parcel(
        what, item.id, text, platform=item.platform, account=item.account, chat_id=item.chat_id,
        thread_id=None if thread is None else str(thread), trace_id=item.trace_id,
    )  # fmt: skip


# -- texts ------------------------------------------------------------------------------------------------------------


def stale(count: int, *, hours: float) -> str:
    """Messages came while nobody was here, longer ago than `gateway.max_message_age`."""
    which = "1 message" if count == 1 else f"{count} messages"
    them = "it" if count == 1 else "them"
    return (
        f"I was away: {which} of yours came more than {_span(hours * 3_600)} ago, and I did not act on {them}. "
        f"/catchup answers {them} now."
    )


def reset(reason: str, policy: SessionResetPolicy, *, info: str = "") -> str:
    """The conversation began anew by itself."""
    why = {
        "idle": f"inactive for {_span(policy.idle_minutes * 60)}",
        "daily": f"daily schedule at {policy.at_hour}:00",
        "suspended": "it was stopped or interrupted",
        "resume_pending_expired": "recovery after a restart timed out",
    }.get(reason, reason)
    lines = [f"Session automatically reset ({why}). History cleared; /resume brings the earlier conversation back."]
    if reason in ("idle", "daily"):
        lines.append("session_reset in config.yaml changes when this happens.")
    return "\n".join([*lines, info] if info else lines)


def reset_is_told(reason: str, policy: SessionResetPolicy, *, platform: str, had_activity: bool) -> bool:
    if reason in ALWAYS_TOLD:
        return True
    return policy.notify and had_activity and platform not in policy.notify_exclude_platforms


def busy(mode: str, *, waiting: int = 0) -> str:
    """A message came while a turn runs."""
    if mode == "interrupt":
        return "I stop what I am doing and turn to your new message."
    if mode == "steer":
        return "Noted: I take this into account in what I am doing now."
    place = f" ({waiting} waiting)" if waiting > 1 else ""
    return f"I am still busy; your message is next{place}. /stop ends what I am doing."


def refused_full(most: int) -> str:
    return f"{most} messages of this chat wait already, so I did not take this one. Send it again later, or /stop."


def let_in() -> str:
    """For a stranger no more; what they wrote as one was never stored."""
    return "You have been let in: I may talk to you now. What you wrote before I have not kept; please say it again."


def old_turn(seconds: float) -> str:
    """A turn was left behind by a process that died long ago."""
    return (
        f"I was stopped in the middle of an answer {_span(seconds)} ago, and did not go on with it. What was done "
        "until then is kept; /catchup goes on with it now."
    )


def stopping() -> str:
    """The gateway ends while a turn runs that may not be done in time."""
    return "I am being stopped. What is not done in a moment I go on with when I am back; nothing is lost."


def back(seconds: float) -> str:
    """A turn goes on that was cut off, and nobody was here for a while."""
    return f"I was away for {_span(seconds)}, and go on now with what I was doing for you."


def cut_off_command(name: str) -> str:
    """A command ran when the process was lost."""
    return (
        f"/{name} was under way when I was restarted, and I do not know how far it came. I did not run it again: "
        f"look at the result, and send /{name} once more if it is needed."
    )


def unknown_delivery(item: OutboxItem) -> Parcel:
    """Asks the chat of an item that may or may not have arrived whether it is to be sent again."""
    asked = about_item(
        item,
        "delivery",
        "An answer of mine may or may not have arrived here: the connection broke as I sent it. "
        f"If nothing stands above, press Send again, or write /resend {item.id}.",
    )
    answer = {"kind": "command", "id": str(item.id), "choice": f"/resend {item.id}"}
    return replace(asked, payload={**asked.payload, "buttons": [[{"label": "Send again", "answer": answer}]]})


def waiting(question_id: str, *, hours: float) -> str:
    """A turn was put down because nobody has answered its question yet."""
    return (
        f"I have stopped here and wait for an answer to my question; it stays open for {_span(hours * 3_600)}. "
        f"Once it is answered I go on: /approve {question_id}, or /deny {question_id}. Until then, write as you like."
    )


def delivery_failed(reason: str) -> str:
    why = " ".join(reason.split())[:200]
    return f"An answer of mine could not be delivered here: {why}. Ask for it again to get it."


def _span(seconds: float) -> str:
    """`40` → `40s`, `90` → `2m`; whole hours where they fit."""
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    minutes = max(1, round(seconds / 60))
    if minutes % 60 == 0:
        return f"{minutes // 60}h"
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def elsewhere() -> str:
    return "This conversation is in use in another place, such as a terminal. Your message waits until it is free."
