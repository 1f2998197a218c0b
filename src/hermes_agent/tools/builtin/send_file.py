"""`send_file`: sends a file that the agent made to the chat of the turn.

Only files that are really in `<home>/workspace` are sent: links are resolved first. The file is copied by its hash and
put into the outbox under the id of this call, so the present content is sent, and only once, even if the turn is
recovered after a crash. A text never sends a file.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hermes_agent import context
from hermes_agent.tools import descriptors, paths
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value
from hermes_state.ids import LOCAL_SOURCES
from hermes_state.people import media_files
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

_NO_CHATS = LOCAL_SOURCES | {"", "local", "api_server", "webhook", "tool", "unknown"}


async def send_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    bound = context.current()
    identity = None if bound is None else bound.identity
    if identity is None or not identity.chat_id or identity.platform in _NO_CHATS:
        raise paths.ToolRefused("there is no chat here that a file could be sent to")
    written = str(_in_workspace(args["path"], ctx))
    _check_place(await asyncio.to_thread(paths.locate, written, ctx), ctx)
    place = await paths.for_reading(written, ctx)
    kept = await asyncio.to_thread(_keep, place, ctx)
    name = place.named.name
    caption = str(args.get("caption") or "").strip()
    payload: dict[str, Any] = {
        "text": "",
        "kind": "file",
        "files": [{"path": str(kept.path), "name": name, "caption": caption}],
    }
    if identity.thread_id:
        payload["thread_id"] = identity.thread_id
    new_item = NewOutboxItem(
        dedup_key=f"file:{ctx.turn_id}:{ctx.call_id}",
        platform=identity.platform,
        chat_id=identity.chat_id,
        payload=payload,
        conversation_id=ctx.conversation_id,
        turn_id=ctx.turn_id,
        held=identity.held,
    )
    item: OutboxItem = await asyncio.to_thread(ctx.db.outbox.enqueue, new_item)
    where = "waits until the owner sends it" if item.state == "held" else "is on its way to the chat"
    return ToolResult(f"{name} ({kept.size:,} bytes) {where}.", shown=f"{name} → #{item.id}")


def _in_workspace(raw: str, ctx: ToolContext) -> Path:
    """The written path; a relative one is relative to the workspace, whatever the turn's folder."""
    path = Path(raw)
    return path if path.is_absolute() or raw.startswith("~") else ctx.home / "workspace" / path


def _check_place(place: paths.FilePlace, ctx: ToolContext) -> None:
    workspace = Path(os.path.realpath(ctx.home / "workspace"))
    if not place.real.is_relative_to(workspace):
        raise paths.ToolRefused(f"{place.named} is not in the workspace", hint=f"Copy it to {workspace} first.")


def _keep(place: paths.FilePlace, ctx: ToolContext) -> media_files.Kept:
    """A copy of the file as it is now. Blocks."""
    _check_place(place, ctx)
    try:
        with descriptors.opened(place.real.parent) as folder:
            handle = folder.open(place.real.name)
    except OSError as error:
        raise paths.ToolRefused(f"{place.named} has changed meanwhile: {error.strerror}") from error
    try:
        size = os.fstat(handle).st_size
        if not size:
            raise paths.ToolRefused(f"{place.named} is empty")
        most = ctx.db.limits.send_file_bytes
        if size > most:
            raise paths.ToolRefused(f"{place.named} has {size:,} bytes; at most {most:,} are sent")
        return media_files.copy(ctx.home, handle, ending=place.real.suffix.lower(), most=most)
    finally:
        os.close(handle)


TOOL = Tool(
    name="send_file",
    toolset="file",
    description=(
        "Send a file from the workspace to the person in this chat, as a picture or a document. Write it to the"
        " workspace first. This is the only way to send a file: to name a path in your answer does not send it."
    ),
    parameters=parameters(
        "path",
        path=value("string", "The file, relative to the workspace.", minLength=1),
        caption=value("string", "A line shown with it.", maxLength=1000),
    ),
    handler=send_file,
    roles=frozenset({"owner", "admin"}),
    on_platform=lambda platform: platform not in _NO_CHATS,
    summary=lambda args: str(args.get("path", "")),
)
