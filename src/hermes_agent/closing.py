"""What plug-ins are told when a place leaves a conversation: one function for each way of leaving.

Each is called after the transition has committed, and fires the same hooks in the same order with exactly `session_id`
and `platform`. They are best effort: a crash in between may lose one and never repeats one, and a plug-in that fails
or hangs costs nothing but its own call.
"""

from __future__ import annotations

import logging

from hermes_cli import plugins
from hermes_state.ids import SessionId

_log = logging.getLogger("hermes.agent")


async def turned(*, old: SessionId | None, new: SessionId, platform: str) -> None:
    """A place has turned to another conversation: /new, /resume, /branch."""
    if old is not None:
        await _fire("on_session_finalize", old, platform)
    await _fire("on_session_reset", new, platform)


async def left(*, session_id: SessionId, platform: str) -> None:
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
