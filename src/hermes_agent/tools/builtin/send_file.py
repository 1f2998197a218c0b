"""`send_file`: sends files that the agent made to the chat of the turn.

Only files that are really in `<home>/workspace` are sent: links are resolved first. The files are copied by their
hashes and put into the outbox under the id of this call, so the present content is sent, and only once, even if the
turn is recovered after a crash. Files of one call go out together, where the platform has albums. A text never sends a
file.
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

_MOST = 10
_NO_CHATS = LOCAL_SOURCES | {"", "local", "api_server", "webhook", "tool", "unknown"}


async def send_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    bound = context.current()
    identity = None if bound is None else bound.identity
    if identity is None or not identity.chat_id or identity.platform in _NO_CHATS:
        raise paths.ToolRefused("there is no chat here that a file could be sent to")
    files: list[dict[str, Any]] = []
    size = 0
    for path in (args["path"], *(args.get("more") or ())):
        written = str(_in_workspace(path, ctx))
        _check_place(await asyncio.to_thread(paths.locate, written, ctx), ctx)
        place = await paths.for_reading(written, ctx)
        kept = await asyncio.to_thread(_keep, place, ctx)
        files.append({"path": str(kept.path), "name": place.named.name, "caption": ""})
        size += kept.size
    files[0]["caption"] = str(args.get("caption") or "").strip()
    payload: dict[str, Any] = {"text": "", "kind": "file", "files": files}
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
    names, one = ", ".join(file["name"] for file in files), len(files) == 1
    if item.state == "held":
        where = f"{'waits' if one else 'wait'} until the owner sends {'it' if one else 'them'}"
    else:
        where = f"{'is' if one else 'are'} on {'its' if one else 'their'} way to the chat"
    return ToolResult(f"{names} ({size:,} bytes) {where}.", shown=f"{names} → #{item.id}")


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
        more=value(
            "array",
            "Further files that belong with it; all go out together.",
            maxItems=_MOST - 1,
            items={"type": "string", "minLength": 1},
        ),
        caption=value("string", "A line shown with the first.", maxLength=1000),
    ),
    handler=send_file,
    repeatable=True,
    roles=frozenset({"owner", "admin"}),
    on_platform=lambda platform: platform not in _NO_CHATS,
    summary=lambda args: ", ".join(map(str, (args.get("path", ""), *(args.get("more") or ())))),
)
