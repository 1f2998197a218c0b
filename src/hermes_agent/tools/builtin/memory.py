"""`memory`: notes for later conversations, kept by `hermes_agent.memory`.

Only conversations that a person owns alone can reach that person's memory: in a group nothing private is written or
shown. A new note enters the system text of later conversations, never of this one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, value

if TYPE_CHECKING:
    from hermes_agent.memory import Memory


async def memory(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_change, args, ctx)


def _change(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.memory import MemoryRefused, MemoryStore

    if ctx.person_id is None or ctx.db.ledger.owner(ctx.conversation_id) != ctx.person_id:
        return ToolResult("There is no memory here: this conversation does not belong to one person alone.", True)
    target = args.get("target", "memory")
    operations = args.get("operations") or [
        {name: args[name] for name in ("action", "content", "old_text") if name in args}
    ]
    store = MemoryStore(ctx.home, ctx.person_id, settings=ctx.config.memory)
    try:
        kept = store.apply(target, operations)
    except MemoryRefused as error:
        listing = f"\n{_listed(error.memory)}" if error.memory else ""
        return ToolResult(f"Nothing was changed: {error.one_line()}{listing}", is_error=True)
    return ToolResult(f"Done. {_listed(kept)}", shown=f"{len(kept.entries)} entries")


def _listed(kept: Memory) -> str:
    entries = "\n".join(f"- {entry}" for entry in kept.entries)
    size = f"{len(kept.entries)} entries, {kept.used} of {kept.limit} characters"
    return f"{kept.target} now has {size}:\n{entries}".rstrip()


_OPERATION = {
    "action": value("string", "What to do.", enum=["add", "replace", "remove"]),
    "content": value("string", "add, replace: the new entry, one fact in a sentence or two."),
    "old_text": value("string", "replace, remove: a part of the entry that no other entry has."),
}

TOOL = Tool(
    name="memory",
    toolset="memory",
    description=(
        "Remember something for later conversations: preferences and facts about the person (target user), and what you"
        " learned about their projects and tools (target memory). Save what will still matter in weeks, in short"
        " entries; not progress, logs or secrets. Room is small: replace or remove entries when it is full. You see"
        " changes in the next conversation, not in this one."
    ),
    parameters={
        "type": "object",
        "properties": {
            **_OPERATION,
            "target": value("string", "Default memory.", enum=["memory", "user"]),
            "operations": {
                "type": "array",
                "maxItems": 50,
                "description": "Several changes of one target at once: all of them are made or none.",
                "items": {"type": "object", "properties": dict(_OPERATION), "required": ["action"]},
            },
        },
    },
    handler=memory,
    roles=frozenset({"owner", "admin", "member"}),
    summary=lambda args: " ".join(str(args.get(name, "")) for name in ("action", "content", "old_text")).strip(),
)
