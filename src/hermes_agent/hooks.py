"""The plug-in hooks a turn calls, in one place (contract §2.3).

They are looked up on the module at call time, so that plug-ins loaded later and tests that replace `invoke_hook` are
seen. Nothing a hook does or raises can break a turn.
"""

from __future__ import annotations

import logging
from typing import Any

from hermes_cli import plugins

_log = logging.getLogger("hermes.agent")


def fire(name: str, **facts: Any) -> list[Any]:
    """What the callbacks of a hook returned; nothing when there are none or the call itself fails."""
    if not plugins.has_hook(name):
        return []
    try:
        return list(plugins.invoke_hook(name, **facts))
    except Exception:  # noqa: BLE001 - boundary: plug-ins
        _log.exception("a hook failed", extra={"action": "hook_failed", "hook": name})
        return []


def first_text(answers: list[Any]) -> str | None:
    """The first text among the answers: what a transforming hook replaces something with."""
    return next((answer for answer in answers if isinstance(answer, str) and answer), None)


def added_context(answers: list[Any]) -> str:
    """What `pre_llm_call` hooks want the model to know with this message."""
    texts = []
    for answer in answers:
        text = answer.get("context") if isinstance(answer, dict) else answer
        if isinstance(text, str) and text.strip():
            texts.append(text.strip())
    return "\n\n".join(texts)


def blocked(answers: list[Any]) -> str | None:
    """The message of the first `pre_tool_call` answer that vetoes the call."""
    for answer in answers:
        if isinstance(answer, dict) and answer.get("action") == "block":
            return str(answer.get("message") or "a plug-in blocked this call")
    return None
