"""`session_search`: searches past conversations that the person may see.

A conversation that one person owns alone may search all conversations of that person. Any other (a group, an unknown
person) searches only itself: other people must not see what a person wrote elsewhere. The store decides the scope, not
the model.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hermes_agent.text import counted, shortened
from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value

_DEFAULT_HITS = 10
_EARLIER = "earlier conversations"
_WINDOW = 5
_MESSAGE_CHARS = 2_000


class _Scope(NamedTuple):
    owner: str | None
    conversation: str | None


def session_search(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    owned = ctx.person_id is not None and ctx.db.ledger.owner(ctx.conversation_id) == ctx.person_id
    scope = _Scope(ctx.person_id, None) if owned else _Scope(None, ctx.conversation_id)
    if "session_id" in args:
        return _read(args["session_id"], args.get("around_message_id"), args.get("window", _WINDOW), scope, ctx)
    if args.get("query", "").strip():
        return _search(args, scope, ctx)
    return _recent(args, scope, ctx)


def _search(args: dict[str, Any], scope: _Scope, ctx: ToolContext) -> ToolResult:
    roles = [role.strip() for role in args.get("role_filter", "user,assistant").split(",") if role.strip()]
    found = ctx.db.search_messages(
        args["query"],
        role_filter=roles or None,
        limit=args.get("limit", _DEFAULT_HITS),
        offset=args.get("offset", 0),
        sort=args.get("sort"),
        owner=scope.owner,
        conversation=scope.conversation,
        related=True,
    )
    where = "" if scope.conversation is None else " [only this conversation was searched]"
    if found.unread:
        where += f" [about {found.unread:,} older messages are not searched yet; search again in a while]"
    if not found:
        return ToolResult(f"Nothing about {args['query']!r} was found.{where}", shown="nothing found")
    titles: dict[str, str] = {}
    lines: list[str] = []
    for hit in found:
        session = hit["session_id"]
        if session not in titles:
            # Compression moves the title to the newest segment, so it is read from the conversation.
            titles[session] = ctx.db.get_session_title(ctx.db.get_compression_tip(session)) or "untitled"
        snippet = " ".join(str(hit.get("snippet") or hit.get("content") or "").split())
        lines.append(
            f"{_day(hit.get('timestamp'))} · {titles[session]} · {hit.get('role')} · session_id {session},"
            f" message {hit['id']}\n  {snippet[:500]}"
        )
    lines.append(f"[read around a hit with session_id and around_message_id]{where}")
    return ToolResult("\n".join(lines), shown=f"{len(found)} found", source=_EARLIER)


def _recent(args: dict[str, Any], scope: _Scope, ctx: ToolContext) -> ToolResult:
    if scope.owner is None:
        return ToolResult("Here only this conversation can be searched: give a query.", is_error=True)
    page = {"limit": args.get("limit", _DEFAULT_HITS), "offset": args.get("offset", 0)}
    rows = ctx.db.list_sessions_rich(order_by_last_active=True, owner=scope.owner, **page)
    if not rows:
        return ToolResult("There are no conversations yet.")
    lines = [
        f"{_day(row.get('last_active'))} · {row.get('title') or 'untitled'} · {row.get('source')}"
        f" · session_id {row['id']}\n  {' '.join(str(row.get('preview') or '').split())[:200]}"
        for row in rows
    ]
    return ToolResult("\n".join(lines), shown=f"{len(rows)} conversations", source=_EARLIER)


def _read(session_id: str, around: int | None, window: int, scope: _Scope, ctx: ToolContext) -> ToolResult:
    # Another person's session gets the same answer as a missing one.
    unknown = ToolResult(f"There is no conversation {session_id[:80]!r} that can be read here.", is_error=True)
    if ctx.db.get_session(session_id) is None:
        return unknown
    root = ctx.db.get_conversation_root(session_id)
    allowed = root == scope.conversation if scope.owner is None else ctx.db.ledger.owner(root) == scope.owner
    if not allowed:
        return unknown
    if around is None:
        messages: Sequence[Mapping[str, Any]] = ctx.db.get_messages(session_id)[-2 * window :]
    else:
        messages = ctx.db.get_messages_around(session_id, around, window)["window"]
    if not messages:
        return ToolResult("There are no messages there.", is_error=True)
    return ToolResult(
        "\n".join(_message(one) for one in messages), shown=counted(len(messages), "message"), source=_EARLIER
    )


def _message(row: Mapping[str, Any]) -> str:
    content = row.get("content")
    text = content if isinstance(content, str) else "" if content is None else "[not text]"
    said = shortened(text, _MESSAGE_CHARS)
    return f"[{row.get('id')}] {_day(row.get('timestamp'))} {row.get('role')}: {said}"


def _day(moment: Any) -> str:
    if not isinstance(moment, int | float):
        return "?"
    return dt.datetime.fromtimestamp(moment, tz=dt.UTC).strftime("%Y-%m-%d %H:%M")


TOOL = Tool(
    name="session_search",
    toolset="session_search",
    description=(
        "Look into past conversations with this person, when they refer to something from before. With `query`: the"
        ' messages with these words (OR, NOT, a "phrase", prefix*). Without: the newest conversations. With'
        " `session_id`: read in that conversation."
    ),
    parameters=parameters(
        query=value("string", "Words to look for."),
        role_filter=value("string", "Whose messages. Default user,assistant; also tool."),
        limit=value("integer", "Default 10.", minimum=1, maximum=50),
        offset=value("integer", "How many to skip.", minimum=0),
        sort=value("string", "By time instead of relevance.", enum=["newest", "oldest"]),
        session_id=value("string", "The conversation to read in."),
        around_message_id=value("integer", "The message to read around."),
        window=value("integer", "Messages on each side. Default 5.", minimum=1, maximum=50),
    ),
    handler=session_search,
    changes=False,
    summary=lambda args: str(args.get("query") or args.get("session_id") or "recent"),
)
