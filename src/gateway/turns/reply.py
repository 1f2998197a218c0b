"""From the end of a turn to what its chat is owed.

`owe` runs inside the agent, before the commit that ends the turn, and sees nothing but the turn's own rows and how it
ended. Its parcel is stored in that commit, so an answer cannot be lost between the model and the outbox. What has no
answer owes nothing: a silence the model chose, and a turn the person stopped before anything of it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config import Platform
from gateway.outbound import notices
from gateway.routes.source import SessionSource
from hermes_agent.turn.request import TurnEnd
from hermes_state.turns.outbox import Parcel, answer_key
from hermes_state.turns.turns import Work

_SILENCE = frozenset({"[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"})
_CONTEXT_WORDS = ("context", "token", "too large", "too long", "exceed", "payload")
_TOO_LARGE = ("context_overflow", "payload_too_large")
_LONG_HISTORY = 50
EXHAUSTED = (
    "This conversation no longer fits the model, however it is compressed. Session automatically reset: send your "
    "message again to begin a new one; /resume brings the earlier one back."
)
"""The whole of what a chat is told: by the time it is read the chat has begun anew, and /compact would be void."""
_TOLD = (
    "model", "input_tokens", "output_tokens", "cache_read_tokens", "completed", "partial", "failed", "interrupted",
    "turn_exit_reason", "error",
)  # fmt: skip


def is_silence(text: str) -> bool:
    """The whole reply is the model's way of saying nothing. Inside other words the marker is just text."""
    return text.strip() in _SILENCE


def may_be_silence(text: str) -> bool:
    """What has come of a reply so far may still turn out to be such a marker."""
    return any(marker.startswith(text.strip()) for marker in _SILENCE)


def owe(
    work: Work,
    ending: TurnEnd,
    *,
    source: SessionSource | None,
    account: str = "",
    sender: str | None = None,
    shown: str = "",
) -> Parcel | None:
    """What is owed to `source`, where the turn's messages came from; nothing without it.

    `account`: ours there, for a turn that has no messages. `shown`: what stands in the chat of the answer already, as
    the draft of this very parcel.
    """
    api = source is not None and source.platform is Platform.API_SERVER
    text = _text(ending, shown=shown, chat=not api)
    if source is None or not text:
        return None
    row = work.inbox[-1] if work.inbox else None
    # Whoever asks the API again is told what the turn used, too; in a room an answer says whom it answers.
    payload = notices.payload(
        text, "answer", result={name: ending.facts.get(name) for name in _TOLD} if api else None,
        thread_id=source.thread_id, reply_to=row.message_id if row is not None and source.chat_type != "dm" else None,
    )  # fmt: skip
    return Parcel(
        dedup_key=answer_key(work.turn.id), platform=source.platform.value,
        account=account if row is None else row.account, chat_id=str(source.chat_id),
        payload=payload, sender=sender,
    )  # fmt: skip


def _text(ending: TurnEnd, *, shown: str, chat: bool) -> str:
    """`chat`: it has no other place for what the person must know than behind the answer."""
    facts = ending.facts
    if ending.state == "cancelled":
        return (ending.text or shown) if shown else ""
    text = (ending.text or "").strip()
    if ending.state == "done" and is_silence(text):
        return ""
    if facts.get("compression_exhausted") and not text:
        return EXHAUSTED
    text = normalize_empty_agent_response(facts, ending.text or "", history_len=0)
    return "\n\n".join([text, *(f"({notice})" for notice in facts.get("notices") or ())]) if text and chat else text


def normalize_empty_agent_response(agent_result: Mapping[str, Any], response: str, *, history_len: int = 0) -> str:
    """A turn that did something and said nothing still tells the person what happened (contract §5.6)."""
    if response.strip() and response.strip() != "(empty)":
        return response
    error, calls = str(agent_result.get("error") or ""), int(agent_result.get("api_calls") or 0)
    if agent_result.get("failed"):
        return _failed(error, history_len, agent_result.get("error_kind"))
    if agent_result.get("interrupted"):
        return "" if calls else "This was stopped before I began with it. Please send it again."
    if calls:
        if agent_result.get("partial"):
            if "remained incomplete after" in error:
                return ""
            return f"I could not finish: {error[:200] or 'the model stopped early'}. Please try again."
        return "No response was generated. This may pass: please send it again."
    return "This was not processed. Please send it again."


def _failed(error: str, history_len: int, kind: str | None) -> str:
    """`kind` is known for errors of model calls; only where it is not, the words have to tell."""
    low = error.lower()
    told = any(word in low for word in _CONTEXT_WORDS) or ("400" in error and history_len > _LONG_HISTORY)
    if kind in _TOO_LARGE or (kind is None and told):
        return (
            "This conversation has grown larger than the model's context window. "
            "/compact summarises the older part, /reset begins a new conversation."
        )
    return f"{error[:300] or 'Something went wrong.'}\n/retry asks again, /reset begins a new conversation."
