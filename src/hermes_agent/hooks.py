"""The plug-in hooks that a turn calls.

`invoke_hook` is looked up on the module at call time, so that plug-ins loaded later and tests that replace it are seen.
Hooks run outside the event loop, for at most `limits.hook_ms`, so a hook that fails or hangs cannot break a turn or
delay another.
"""

from __future__ import annotations

import logging
from typing import Any

from hermes_cli import plugins
from hermes_state.ids import SessionId

_log = logging.getLogger("hermes.agent")


async def fire(name: str, **facts: Any) -> list[Any]:
    """Call a hook and return its callbacks' results; empty without callbacks, or if the call fails or hangs."""
    return (await _call(name, facts) or []) if plugins.has_hook(name) else []


async def _call(name: str, facts: dict[str, Any]) -> list[Any] | None:
    """The callbacks' results; None if the call failed."""
    seconds = plugins.get_plugin_manager().limits.hook_ms / 1000
    try:
        return list(await plugins.call_plugin(plugins.invoke_hook, name, seconds=seconds, **facts))
    except Exception as error:  # noqa: BLE001 - boundary: plug-ins
        kind = type(error).__name__  # the error's text may quote the hook's arguments
        _log.error("hook %s failed (%s)", name, kind, extra={"action": "hook_failed", "hook": name, "error": kind})
        return None


def first_text(answers: list[Any]) -> str | None:
    """The first text among the results: the replacement that a transforming hook returned."""
    return next((answer for answer in answers if isinstance(answer, str) and answer), None)


def added_context(answers: list[Any]) -> str:
    """The context that `pre_llm_call` hooks add to this message for the model."""
    texts = []
    for answer in answers:
        text = answer.get("context") if isinstance(answer, dict) else answer
        if isinstance(text, str) and text.strip():
            texts.append(text.strip())
    return "\n\n".join(texts)


async def tool_call_decision(**facts: Any) -> plugins.PreToolDecision | None:
    """The decision of the `pre_tool_call` hooks on a call. A hook that fails blocks the call, as it may guard it."""
    if not plugins.has_hook("pre_tool_call"):
        return None
    answers = await _call("pre_tool_call", facts)
    if answers is None:
        return plugins.PreToolDecision("block", "a plug-in that checks calls failed, so this one was not made")
    return plugins.resolve_pre_tool_block(answers)


# -- leaving a conversation ---------------------------------------------------------------------------------------
# Fired after the change has committed, with exactly `session_id` and `platform`. Best effort: a crash in between may
# lose a call but never repeats one.


async def conversation_switched(*, old: SessionId | None, new: SessionId, platform: str) -> None:
    """Tell plug-ins that a chat or terminal switched to another conversation (/new, /resume, /branch)."""
    if old is not None:
        await conversation_left(session_id=old, platform=platform)
    await _call("on_session_reset", {"session_id": new, "platform": platform})


async def conversation_left(*, session_id: SessionId, platform: str) -> None:
    """Tell plug-ins that a chat or terminal closed. The conversation itself may continue elsewhere."""
    await _call("on_session_finalize", {"session_id": session_id, "platform": platform})
