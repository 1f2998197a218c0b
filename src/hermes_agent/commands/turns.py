"""Commands about the turns of this conversation: /stop /undo /redo /retry /compress /uncompress.

/undo hides rows and deletes none, so it does not ask first: /redo brings them back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hermes_agent import mentions
from hermes_agent.commands import lookup
from hermes_agent.commands.base import CommandContext
from hermes_agent.commands.conversations import NOTHING_YET
from hermes_agent.messages import text_of
from hermes_agent.text import brief, counted
from hermes_state.conversations.undo import Undone


async def stop(ctx: CommandContext, args: str) -> str:
    """Interrupt the running turn; its finished steps stay."""
    return "Stopped. What was done so far is kept." if await ctx.stop() else "Nothing is running."


async def undo(ctx: CommandContext, args: str) -> str:
    """Take back the last turn, or the last N."""
    if args and not (args.isascii() and args.isdecimal() and len(args) < 6 and int(args)):
        return "How many turns? /undo takes back the last one, /undo 3 the last three."
    undone = await _take_back(ctx, int(args or 1))
    if undone is None:
        return await _nothing_to_take(ctx)
    words = mentions.words(text_of(undone.content))
    began = f": “{brief(words)}”" if words.strip() else "."
    await ctx.prefill(words)
    them = "it" if undone.turns == 1 else "them"
    return f"Took back {counted(undone.turns, 'turn')}{began}\n/redo brings {them} back."


async def redo(ctx: CommandContext, args: str) -> str:
    """Bring back the turns that the last /undo took."""
    session_id = await asyncio.to_thread(lookup.here, ctx)
    if session_id is None:
        return NOTHING_YET
    brought = await asyncio.to_thread(ctx.db.undo.bring_back, session_id)
    if not brought:
        return "There is nothing to bring back: nothing was undone, or something was said since."
    await ctx.changed("redo")
    return f"Brought back {counted(brought, 'turn')}."


async def retry(ctx: CommandContext, args: str) -> str | None:
    """Take the last answer back and ask the question again."""
    undone = await _take_back(ctx, 1)
    if undone is None:
        return await _nothing_to_take(ctx)
    await ctx.run_turn(undone.content)
    return None


async def compress(ctx: CommandContext, args: str) -> str:
    """Summarise the older part now; the arguments say what matters."""
    return NOTHING_YET if ctx.session_id is None else await ctx.compress(args or None)


async def uncompress(ctx: CommandContext, args: str) -> str:
    """Undo the last compression; newer messages are kept."""
    session_id = await asyncio.to_thread(lookup.here, ctx)
    if session_id is None:
        return NOTHING_YET
    if len(await asyncio.to_thread(ctx.db.get_compression_lineage, session_id)) < 2:
        return "This conversation is not compressed."
    undone = await asyncio.to_thread(ctx.db.ledger.uncompress, session_id)
    await ctx.changed("uncompress")
    since = f", with {counted(undone.brought, 'message')} said since" if undone.brought else ""
    return f"As it was before the compression{since}."


async def _take_back(ctx: CommandContext, turns: int) -> Undone | None:
    session_id = await asyncio.to_thread(lookup.here, ctx)
    if session_id is None:
        return None
    undone = await asyncio.to_thread(ctx.db.undo.take_back, session_id, turns, stays=_is_summary)
    if undone is not None:
        await ctx.changed("undo")
    return undone


async def _nothing_to_take(ctx: CommandContext) -> str:
    session_id = await asyncio.to_thread(lookup.here, ctx)
    state = None if session_id is None else await asyncio.to_thread(ctx.db.live_state, session_id)
    if state is None or not state.head_id:
        return NOTHING_YET
    return "What was said before was compressed. /uncompress goes back there."


def _is_summary(content: Any) -> bool:
    """Whether the row is a compression's summary, which is not a turn of the person."""
    from hermes_agent.compression import summary  # needed here only

    return summary.body({"role": "user", "content": content}) is not None
