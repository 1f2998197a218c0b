"""The plug-in hooks a turn calls, in one place (contract §2.3).

They are looked up on the module at call time, so that plug-ins loaded later and tests that replace `invoke_hook` are
seen. They run beside the event loop and have `limits.hook_ms`: nothing a hook does, raises or waits for can break a
turn or hold up another.
"""

from __future__ import annotations

import logging
from typing import Any

from hermes_cli import plugins
from hermes_state.ids import SessionId

_log = logging.getLogger("hermes.agent")


async def fire(name: str, **facts: Any) -> list[Any]:
    """What the callbacks of a hook returned; nothing when there are none, or the call itself fails or hangs."""
    answers = await _fired(name, facts)
    return [] if answers is None else answers


async def _fired(name: str, facts: dict[str, Any]) -> list[Any] | None:
    if not plugins.has_hook(name):
        return []
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


async def decided(**facts: Any) -> plugins.PreToolDecision | None:
    """What `pre_tool_call` hooks want done with a call. One that may guard it and fails has not let it through."""
    answers = await _fired("pre_tool_call", facts)
    if answers is None:
        return plugins.PreToolDecision("block", "a plug-in that checks calls failed, so this one was not made")
    return plugins.resolve_pre_tool_block(answers)


async def conversation_switched(*, old: SessionId | None, new: SessionId, platform: str) -> None:
    """A place has turned to another conversation: /new, /resume, /branch."""
    if old is not None:
        await _fire("on_session_finalize", old, platform)
    await _fire("on_session_reset", new, platform)


async def conversation_left(*, session_id: SessionId, platform: str) -> None:
    """A place has closed; nothing takes its place. The conversation itself may go on elsewhere."""
    await _fire("on_session_finalize", session_id, platform)


async def _fire(hook: str, session_id: SessionId, platform: str) -> None:
    seconds = plugins.get_plugin_manager().limits.hook_ms / 1000
    try:
        # Looked up on the module at the moment of the call, as the specification wants it.
        await plugins.call_plugin(plugins.invoke_hook, hook, seconds=seconds, session_id=session_id, platform=platform)
    except Exception as error:  # noqa: BLE001 - boundary: plug-ins
        kind = type(error).__name__
        _log.error("hook %s failed (%s)", hook, kind, extra={"action": "hook_failed", "hook": hook, "error": kind})
