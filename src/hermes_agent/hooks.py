"""The plug-in hooks a turn calls, in one place (contract §2.3).

`invoke_hook` is looked up on the module at call time, so that plug-ins loaded later and tests that replace it are seen.
Hooks run beside the event loop and have `limits.hook_ms`: nothing a hook does, raises or waits for can break a turn or
hold up another.
"""

from __future__ import annotations

import logging
from typing import Any

from hermes_cli import plugins
from hermes_state.ids import SessionId

_log = logging.getLogger("hermes.agent")


async def fire(name: str, **facts: Any) -> list[Any]:
    """What the callbacks of a hook returned; nothing when there are none, or the call itself fails or hangs."""
    return (await _called(name, facts) or []) if plugins.has_hook(name) else []


async def _called(name: str, facts: dict[str, Any]) -> list[Any] | None:
    """What the callbacks returned; None when the call itself failed."""
    seconds = plugins.get_plugin_manager().limits.hook_ms / 1000
    try:
        return list(await plugins.call_plugin(plugins.invoke_hook, name, seconds=seconds, **facts))
    except Exception as error:  # noqa: BLE001 - boundary: plug-ins
        kind = type(error).__name__  # its text may quote what the hook was told
        _log.error("hook %s failed (%s)", name, kind, extra={"action": "hook_failed", "hook": name, "error": kind})
        return None


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


async def tool_call_decision(**facts: Any) -> plugins.PreToolDecision | None:
    """What `pre_tool_call` hooks want done with a call. One that may guard it and fails has not let it through."""
    if not plugins.has_hook("pre_tool_call"):
        return None
    answers = await _called("pre_tool_call", facts)
    if answers is None:
        return plugins.PreToolDecision("block", "a plug-in that checks calls failed, so this one was not made")
    return plugins.resolve_pre_tool_block(answers)


# -- leaving a conversation ---------------------------------------------------------------------------------------
# Called after the transition has committed, with exactly `session_id` and `platform`. Best effort: a crash in between
# may lose one and never repeats one.


async def conversation_switched(*, old: SessionId | None, new: SessionId, platform: str) -> None:
    """A chat or terminal has turned to another conversation: /new, /resume, /branch."""
    if old is not None:
        await conversation_left(session_id=old, platform=platform)
    await _called("on_session_reset", {"session_id": new, "platform": platform})


async def conversation_left(*, session_id: SessionId, platform: str) -> None:
    """A chat or terminal has closed. The conversation itself may go on elsewhere."""
    await _called("on_session_finalize", {"session_id": session_id, "platform": platform})
