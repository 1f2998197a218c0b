"""Commands that choose a conversation: /new /sessions /resume /branch /title.

None of them loses anything: the previous conversation stays in the store and can be resumed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_agent import hooks
from hermes_agent.commands import lookup
from hermes_agent.commands.base import CommandContext, Why
from hermes_agent.text import ago, brief, counted, named
from hermes_state.errors import InvalidValue
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_state.conversations.ledger import Handle

NOTHING_YET = "Nothing was said here yet."
_TAKEN = "Another conversation of yours has this title already; choose another one."


async def new(ctx: CommandContext, args: str) -> str | None:
    """Start a new conversation; the arguments are its title."""
    old = await asyncio.to_thread(lookup.here, ctx)
    title, problem = await asyncio.to_thread(_usable_title, ctx, args)
    if problem:
        return problem
    if old is not None and await asyncio.to_thread(_is_empty, ctx, old):
        if title is None:
            return "This conversation is new already."
        return await asyncio.to_thread(_set_title, ctx, old, title)
    running = await asyncio.to_thread(lookup.background, ctx)
    handle = await asyncio.to_thread(_begin, ctx, old)
    said = "A new conversation."
    if title is not None:
        given = await asyncio.to_thread(_set_title, ctx, handle.session_id, title)
        said = f"{said} {given}" if given == _TAKEN else f"A new conversation: {title}."
    await _switch(ctx, old, handle, "new")
    said += lookup.still_running(running)
    return f"{said} The old one is kept: /resume {old}" if old is not None and ctx.private else said


def _begin(ctx: CommandContext, old: SessionId | None) -> Handle:
    owner = ctx.person.id if ctx.private else None
    if ctx.route is not None:
        return ctx.db.ledger.reset(ctx.route, scope=ctx.scope, source=ctx.platform, owner=owner).handle
    if old is not None:
        ctx.db.ledger.end(old, "session_reset")
    return ctx.db.ledger.open(source=ctx.platform, owner=owner)


def _is_empty(ctx: CommandContext, session_id: SessionId) -> bool:
    state = ctx.db.live_state(session_id)
    return state is None or state.message_count == 0


def sessions(ctx: CommandContext, args: str) -> str:
    """List the person's own conversations, newest activity first."""
    rows = lookup.newest(ctx.db, ctx.person.id, words=args, limit=ctx.db.limits.listed_conversations)
    if not rows:
        return f"You have no conversation called “{brief(args)}”." if args else "You have no conversations yet."
    lines = lookup.listing(ctx.db, ctx.person, rows, here=_root(ctx))
    return f"{lines}\n\n/resume NUMBER, title or id continues one."


async def resume(ctx: CommandContext, args: str) -> str | None:
    """Continue an earlier conversation, given by its number in the list, its title or its id."""
    if not args:
        return await asyncio.to_thread(sessions, ctx, "")
    owner = lookup.owner_filter(ctx)
    found = await asyncio.to_thread(lookup.matching, ctx.db, ctx.person, args, owner=owner)
    here = await asyncio.to_thread(_root, ctx)
    if not found:
        nobody = "There is" if owner is None else "You have"
        return f"{nobody} no conversation “{brief(args)}”. /sessions lists {'them' if owner is None else 'yours'}."
    if len(found) > 1:
        most = ctx.db.limits.listed_conversations
        lines = await asyncio.to_thread(lookup.listing, ctx.db, ctx.person, found[:most], here=here)
        fits = f"“{brief(args)}” fits {counted(len(found), 'conversation')}"
        return f"{fits}; say which by its number or its id:\n{lines}"
    target = found[0]
    if target["root_id"] == here:
        return f"This is it: {named(target)}."
    old = await asyncio.to_thread(lookup.here, ctx)
    await _switch(ctx, old, await asyncio.to_thread(_go_to, ctx, target["id"]), "resume")
    age = ago(target["last_active"], ctx.db.clock())
    return f"Resumed: {named(target)} ({counted(target['message_count'], 'message')}, {age})."


def _go_to(ctx: CommandContext, session_id: str) -> Handle:
    if ctx.route is not None:
        return ctx.db.ledger.switch(ctx.route, session_id, scope=ctx.scope)
    return ctx.db.ledger.reopen(session_id)


async def branch(ctx: CommandContext, args: str) -> str | None:
    """Continue in a copy of this conversation; the original stays unchanged."""
    old = await asyncio.to_thread(lookup.here, ctx)
    if old is None or await asyncio.to_thread(_is_empty, ctx, old):
        return NOTHING_YET
    try:
        handle = await asyncio.to_thread(_branch, ctx, old, args)
    except InvalidValue:
        return (await asyncio.to_thread(_usable_title, ctx, args))[1] or _TAKEN
    await _switch(ctx, old, handle, "branch")
    return f"This is a copy now; what you say changes nothing in the original. Back to it:\n/resume {old}"


def _branch(ctx: CommandContext, old: SessionId, title: str) -> Handle:
    db = ctx.db
    current = db.get_session_title(old)
    chosen = title or (db.get_next_title_in_lineage(current, beside=old) if current else None)
    return db.ledger.branch(old, title=chosen, route=ctx.route, scope=ctx.scope)


def title(ctx: CommandContext, args: str) -> str:
    """Show or change the title."""
    session_id = lookup.here(ctx)
    if session_id is None:
        return NOTHING_YET
    if args:
        clean, problem = _usable_title(ctx, args)
        return problem or _set_title(ctx, session_id, clean)
    current = ctx.db.get_session_title(session_id)
    return f"Title: {current}" if current else "This conversation has no title yet. /title TEXT gives it one."


def _usable_title(ctx: CommandContext, text: str) -> tuple[str | None, str]:
    """(the title in storable form or None, the reason against it)."""
    try:
        return ctx.db.sanitize_title(text), ""
    except InvalidValue as error:
        return None, error.one_line()


def _set_title(ctx: CommandContext, session_id: SessionId, title: str | None) -> str:
    try:
        return f"Title: {title}" if ctx.db.set_session_title(session_id, title) else NOTHING_YET
    except InvalidValue:  # the store's error would name the other conversation's id
        return _TAKEN


def _root(ctx: CommandContext) -> str | None:
    return None if ctx.session_id is None else ctx.db.get_conversation_root(ctx.session_id)


async def _switch(ctx: CommandContext, old: SessionId | None, handle: Handle, why: Why) -> None:
    """Show another conversation here, then tell the plug-ins."""
    await ctx.show(handle, why=why)
    await hooks.conversation_switched(old=old, new=handle.session_id, platform=ctx.platform)
