"""Commands about the work of this conversation: /stop /processes /agents /undo /redo /retry /compress /uncompress /why.

/undo hides rows and deletes none, so it does not ask first: /redo brings them back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_agent import mentions
from hermes_agent.budget import amount
from hermes_agent.commands import lookup
from hermes_agent.commands.base import CommandContext
from hermes_agent.commands.conversations import NOTHING_YET
from hermes_agent.messages import text_of
from hermes_agent.text import ago, brief, columns, counted
from hermes_state.conversations.undo import Undone
from hermes_state.ids import ConversationId
from hermes_state.people.budgets import NANO

if TYPE_CHECKING:
    from hermes_state.turns.processes import ProcessRow


async def stop(ctx: CommandContext, args: str) -> str:
    """Interrupt the running turn; its finished steps stay. `all`: end background processes too."""
    stopped = await ctx.stop()
    said = "Stopped. What was done so far is kept." if stopped else "Nothing is running."
    running = await asyncio.to_thread(lookup.background, ctx)
    if not running:
        return said
    if args.strip().lower() != "all":
        on = "1 background process keeps running: /stop all ends it."
        several = f"{len(running)} background processes keep running: /stop all ends them."
        return f"{said} {on if len(running) == 1 else several}"
    for row in running:
        await asyncio.to_thread(_kill, ctx, row)
    return f"{f'{said} ' if stopped else ''}Ended: {', '.join(f'{row.id} ({brief(row.command)})' for row in running)}"


def _kill(ctx: CommandContext, row: ProcessRow) -> ProcessRow:
    from hermes_agent import processes  # only background processes need it

    return processes.kill(ctx.db, ctx.config.home, row, quiet=True)


async def processes(ctx: CommandContext, args: str) -> str:
    """The background processes of this conversation; `kill ID` ends one."""
    verb, _, wanted = args.strip().partition(" ")
    if verb == "kill":
        found = [row for row in await asyncio.to_thread(lookup.background, ctx) if row.id == wanted.strip()]
        if not found:
            return f"No background process {brief(wanted, 40)} runs here. /processes lists them."
        ended = await asyncio.to_thread(_kill, ctx, found[0])
        return f"{ended.id} did not end." if ended.running else f"Ended: {ended.id}."
    return await asyncio.to_thread(_processes, ctx)


def _processes(ctx: CommandContext) -> str:
    from hermes_agent import processes

    processes.settle(ctx.db, ctx.config.home)
    session_id, now = lookup.here(ctx), ctx.db.clock()
    root = None if session_id is None else ConversationId(ctx.db.get_conversation_root(session_id))
    rows = () if root is None else ctx.db.processes.of_conversation(root, limit=ctx.db.limits.listed_conversations)
    lines = [f"{row.id}  {processes.described(row, now)}\n  {brief(row.command)}" for row in rows]
    return "\n".join(lines) or "This conversation has no background processes."


def agents(ctx: CommandContext, args: str) -> str:
    """The children of this conversation that wait or work; `stop N` stops one, `stop all` all of them."""
    session_id = lookup.here(ctx)
    db, now = ctx.db, ctx.db.clock()
    conversation = ConversationId("" if session_id is None else db.get_conversation_root(session_id))
    known = db.children.of_parent(conversation)
    calls = {(one.turn_id, one.call_id) for one in known if one.is_open}
    # All children of the calls that are at work, so that a number means the same until the last one has ended.
    children = sorted(
        (one for one in known if (one.turn_id, one.call_id) in calls),
        key=lambda one: (one.created_at, one.call_id, one.position),
    )
    if not children:
        return "Nothing is delegated at the moment."
    word, _, which = args.strip().partition(" ")
    if not word:
        rows = []
        for number, one in enumerate(children, start=1):
            cost = float((db.get_session(one.id) or {}).get("estimated_cost_usd") or 0.0)
            age = ago(one.created_at, now)
            spent = f", {amount(round(cost * NANO), 'usd')}" if cost else ""
            rows.append((f"{number}.", f"{brief(one.goal)} ({one.state}, {age}{spent})"))
        return "\n".join([columns(rows), "/agents stop N stops one, /agents stop all all of them."])
    chosen = children if which == "all" else children[int(which) - 1 : int(which)] if _is_number(which) else []
    if word != "stop" or not chosen:
        return f"Which one? /agents stop 1 … {len(children)}, or /agents stop all."
    stopped = [one for one in chosen if one.is_open and db.children.stop(one, reason="stopped by the person")]
    return f"Stopping {counted(len(stopped), 'task')}." if stopped else "It has ended already."


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6 and int(text) > 0


async def undo(ctx: CommandContext, args: str) -> str:
    """Take back the last turn, or the last N."""
    if args and not _is_number(args):
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


def why(ctx: CommandContext, args: str) -> str:
    """How the last answer here, or that of a named turn, came about. Whoever sits at the terminal may read all."""
    from hermes_agent.receipts import receipt  # needed here only

    if args:
        return receipt.short_text(receipt.receipt_of(ctx.db, receipt.find(ctx.db, args.split(maxsplit=1)[0])))
    session_id = lookup.here(ctx)
    root = None if session_id is None else ConversationId(ctx.db.get_conversation_root(session_id))
    turn = None if root is None else receipt.last_turn(ctx.db, root)
    return NOTHING_YET if turn is None else receipt.short_text(receipt.receipt_of(ctx.db, turn))


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
