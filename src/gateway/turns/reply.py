"""Makes the outbox item with a turn's answer.

The agent calls `make_reply` before the commit that ends the turn. The item is stored in that commit, so an answer
cannot be lost between the model and the outbox. A turn without an answer gets no item: the model chose silence, or the
person stopped the turn before any text was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.config import Platform
from gateway.inbound.stored_message import reply_to
from gateway.outbound import notices
from gateway.routes.source import SessionSource
from hermes_agent.text import SILENCE, is_silence
from hermes_agent.turn.request import TurnEnd
from hermes_state.turns.outbox import NewOutboxItem, answer_key
from hermes_state.turns.turns import Work

_CONTEXT_WORDS = ("context", "token", "too large", "too long", "exceed", "payload")
_TOO_LARGE = ("context_overflow", "payload_too_large")
_LONG_HISTORY = 50
EXHAUSTED = (
    "This conversation no longer fits the model, even when compressed. Session automatically reset: send your "
    "message again to start a new one; /resume brings the earlier one back."
)
"""The chat's reply when compression does not help: the chat is in a new conversation already, so no /compact hint."""
_TOLD = (
    "model", "input_tokens", "output_tokens", "cache_read_tokens", "completed", "partial", "failed", "interrupted",
    "turn_exit_reason", "error",
)  # fmt: skip


def may_be_silence(text: str) -> bool:
    """Whether the beginning of a reply may still become a silence marker."""
    return any(marker.startswith(text.strip()) for marker in SILENCE)


def make_reply(
    work: Work,
    ending: TurnEnd,
    *,
    source: SessionSource | None,
    account: str = "",
    sender: str | None = None,
    shown: str = "",
    job: str = "",
    held: bool = False,
) -> NewOutboxItem | None:
    """The outbox item with the answer for `source`, the chat of the turn's messages; None without a chat or answer.

    `account`: our account there, for a turn without messages. `shown`: the part of the answer that the chat already
    shows as this item's draft. `job`: the name of the scheduled job that the turn runs. `held`: the answer waits until
    the owner sends it.
    """
    api = source is not None and source.platform is Platform.API_SERVER
    text = _text(ending, shown=shown, chat=not api)
    if source is None or not text or source.platform is Platform.LOCAL:
        return None
    if job:
        error = str(ending.facts.get("error") or "")
        failed = ending.facts.get("failed") and error
        text = f"The scheduled job “{job}” failed: {error[:300]}" if failed else f"[{job}]\n{text}"
    row = work.inbox[-1] if work.inbox else None
    # An API client that repeats its request also gets the turn's usage; in a group an answer replies to its message.
    payload = notices.payload(
        text, "answer", result={name: ending.facts.get(name) for name in _TOLD} if api else None,
        thread_id=source.thread_id, reply_to=reply_to(row, source),
    )  # fmt: skip
    return NewOutboxItem(
        dedup_key=answer_key(work.turn.id), platform=source.platform.value,
        account=account if row is None else row.account, chat_id=str(source.chat_id),
        payload=payload, sender=None if held else sender, held=held,
    )  # fmt: skip


def _text(ending: TurnEnd, *, shown: str, chat: bool) -> str:
    """The text of the answer. `chat`: notices for the person are added to it."""
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


def normalize_empty_agent_response(
    agent_result: Mapping[str, Any], response: str | None, *, history_len: int = 0
) -> str:
    """A turn that did something and said nothing still tells the person what happened (contract §5.6)."""
    if response and response.strip() not in ("", "(empty)"):
        return response
    error, calls = str(agent_result.get("error") or ""), int(agent_result.get("api_calls") or 0)
    if agent_result.get("failed"):
        return _failed(error, history_len, agent_result.get("error_kind"))
    if agent_result.get("interrupted"):
        return "" if calls else "This was stopped before I started. Please send it again."
    if calls:
        if agent_result.get("partial"):
            if "remained incomplete after" in error:
                return ""
            return f"I could not finish: {error[:200] or 'the model stopped early'}. Please try again."
        return "No response was generated. This may be temporary: please send it again."
    return "This was not processed. Please send it again."


def _failed(error: str, history_len: int, kind: str | None) -> str:
    """The reply for a failed turn. Errors without a `kind` are recognised by their words."""
    low = error.lower()
    told = any(word in low for word in _CONTEXT_WORDS) or ("400" in error and history_len > _LONG_HISTORY)
    if kind in _TOO_LARGE or (kind is None and told):
        return (
            "This conversation has grown larger than the model's context window. "
            "/compact summarises the older part, /reset starts a new conversation."
        )
    return f"{error[:300] or 'Something went wrong.'}\n/retry asks again, /reset starts a new conversation."
