"""Commands that show information: /status /usage /whoami /timezone /model /tools /mcp.

Only /model NAME and /timezone NAME change something.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from hermes_agent.commands import lookup
from hermes_agent.commands.base import CommandContext
from hermes_agent.commands.conversations import NOTHING_YET
from hermes_agent.text import ago, brief, columns, counted
from hermes_state.ids import SessionId

if TYPE_CHECKING:
    from hermes_state import SessionDB

_LONGEST = 64
_COUNTERS = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "api_call_count")


def status(ctx: CommandContext, args: str) -> str:
    """The state of this conversation."""
    return columns([("turn", "running" if ctx.busy else "none running"), *conversation_facts(ctx)])


def conversation_facts(ctx: CommandContext) -> list[tuple[str, str]]:
    """Facts about the chat and its conversation, without the running turn. Blocks."""
    from hermes_agent.execution import executor  # needed for this answer only

    db, session_id = ctx.db, lookup.here(ctx)
    rows = [("platform", ctx.platform), ("model", ctx.model), ("sandbox", executor.sandbox_of(ctx.config).said)]
    session = None if session_id is None else db.get_session(session_id)
    if session_id is None or session is None:
        return rows
    compressed = len(db.get_compression_lineage(session_id)) - 1
    broken = db.prefixes.break_count(session["root_id"])
    return [
        *rows,
        ("title", session["title"] or "none yet"),
        ("session", session_id),
        ("messages", f"{session['message_count']:,}, last {ago(session['last_active'], db.clock())}"),
        ("compressed", counted(compressed, "time") if compressed else "never"),
        ("prefix", f"{counted(broken, 'break')}" if broken else "kept (0 breaks)"),
    ]


def usage(ctx: CommandContext, args: str) -> str:
    """Tokens and cost of this conversation, all its segments together."""
    session_id = lookup.here(ctx)
    if session_id is None:
        return NOTHING_YET
    rows = used(ctx, session_id)
    return columns([*rows, *_limits(ctx, session_id)]) if rows else "No model was asked in this conversation yet."


def used(ctx: CommandContext, session_id: SessionId) -> list[tuple[str, str]]:
    """The conversation's tokens and cost so far; empty if no model was asked."""
    total, cost = totals(ctx.db, session_id)
    if not total["api_call_count"]:
        return []
    return [
        ("calls", f"{total['api_call_count']:,}"),
        ("input", f"{total['input_tokens']:,} tokens, {total['cache_read_tokens']:,} of them from the cache"),
        ("output", f"{total['output_tokens']:,} tokens"),
        ("cost", "not known: the model has no price" if cost is None else f"${cost:.4f}"),
    ]


def totals(db: SessionDB, session_id: str) -> tuple[dict[str, int], float | None]:
    """The counters of all segments of a conversation, and their cost if known."""
    total = dict.fromkeys(_COUNTERS, 0)
    cost: float | None = None
    for segment in db.get_compression_lineage(session_id):
        row: dict[str, Any] = db.get_session(segment) or {}
        for name in _COUNTERS:
            total[name] += row.get(name) or 0
        spent = row.get("actual_cost_usd") if row.get("actual_cost_usd") is not None else row.get("estimated_cost_usd")
        if spent is not None:
            cost = (cost or 0.0) + spent
    return total, cost


def _limits(ctx: CommandContext, session_id: SessionId) -> list[tuple[str, str]]:
    """How much of each spending limit is used. A group does not see a person's own figures."""
    from hermes_agent import budget  # needed for this answer only

    db, person = ctx.db, ctx.person
    root = db.get_conversation_root(session_id)
    whose: dict[str, tuple[str, str, str | None]] = {"conversation": ("this conversation", root, None)}
    if ctx.private:
        whose["person_day"] = ("your day", person.id, person.zone)
        whose["person_month"] = ("your month", person.id, person.zone)
    if person.role in ("owner", "admin"):
        whose["day"] = ("everybody's day", "", None)
        whose["month"] = ("everybody's month", "", None)
    rows = []
    for limit in budget.limits_of(ctx.config.budget):
        if limit.scope in whose:
            name, subject, zone = whose[limit.scope]
            used = db.budgets.used(limit.scope, subject, zone=zone)[1].of(limit.unit)
            rows.append((name, f"{budget.amount(used, limit.unit)} of {budget.amount(limit.most, limit.unit)}"))
    return rows


def whoami(ctx: CommandContext, args: str) -> str:
    """The person's name, role and accounts, as Hermes knows them."""
    person = ctx.person
    identities = ctx.db.people.identities(person.id)
    known = ", ".join(f"{identity.platform} {identity.native_id}" for identity in identities)
    return columns([
        ("name", person.display_name or "not known"),
        ("role", person.role),
        ("zone", person.zone or "this machine's"),
        ("known as", known or "nothing yet"),
        ("person", person.id),
    ])  # fmt: skip


def timezone(ctx: CommandContext, args: str) -> str:
    """Show or set the person's time zone, which defines their day."""
    wanted = args.strip()
    if not wanted:
        return f"Your zone: {ctx.person.zone or 'not set; this machine’s is used'}. /timezone Europe/Lisbon sets it."
    zone, near = zones_like(wanted)
    if zone is None:
        hint = f"Did you mean {' or '.join(near)}?" if near else "It is a name such as Europe/Lisbon."
        return f"There is no zone “{brief(wanted, 40)}”. {hint}"
    ctx.db.people.set_zone(ctx.person.id, zone)
    there = dt.datetime.fromtimestamp(ctx.db.clock(), tz=zoneinfo.ZoneInfo(zone))
    return f"Your zone is {zone} now: it is {there:%H:%M} there."


async def model(ctx: CommandContext, args: str) -> str:
    """Show this conversation's model, or use another one."""
    if not args:
        return f"Model: {ctx.model}. /model NAME uses another one in this conversation."
    if "--global" in args.split():
        return "This changes one conversation. For all new ones: hermes config set model.default NAME"
    return await ctx.use_model(args)


def tools(ctx: CommandContext, args: str) -> str:
    """List the tools that the model may call here: those of the prompt, and where it finds others."""
    from hermes_agent.tools import registry  # the tools' modules are needed for this answer only
    from hermes_agent.tools.builtin import find_tool

    offered = registry.shared().offered(ctx.config, role=ctx.person.role, platform=ctx.platform)
    if not offered:
        return "The model has no tools here."
    listed = columns([(tool.name, brief(tool.description.partition(". ")[0], 90)) for tool in offered if tool.listed])
    found = [tool for tool in offered if not tool.listed]
    return f"{listed}\n\n{find_tool.sources(found)}" if found else listed


def mcp(ctx: CommandContext, args: str) -> str:
    """List the MCP servers and their state."""
    if not ctx.config.mcp_servers:
        return "There is no MCP server. hermes mcp add adds one."
    from hermes_agent.mcp import source  # only a home with servers needs it

    return columns([(name, brief(words, 300)) for name, _state, words in source.described(ctx.config)])


def zones_like(wanted: str) -> tuple[str | None, list[str]]:
    """(the zone or None, similar names)."""
    known = {name.lower(): name for name in zoneinfo.available_timezones()}
    low = "_".join(wanted.lower().split())
    if low in known:
        return known[low], []
    if not low or len(low) > _LONGEST:
        return None, []
    by_city = [name for lower, name in sorted(known.items()) if lower.rpartition("/")[2] == low]
    if len(by_city) == 1:
        return by_city[0], []
    if by_city:
        return None, by_city[:3]
    cities = {lower.rpartition("/")[2]: name for lower, name in sorted(known.items(), reverse=True)}
    near = [known[one] for one in get_close_matches(low, known, n=2, cutoff=0.75)]
    near += [cities[one] for one in get_close_matches(low.rpartition("/")[2], cities, n=2, cutoff=0.75)]
    return None, list(dict.fromkeys(near))[:3]
