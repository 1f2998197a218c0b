"""`memory`: notes for later conversations, kept by `hermes_agent.knowledge.memory`.

Only conversations that a person owns alone can reach that person's memory: in a group nothing private is written or
shown. A new note enters the system text of later conversations, never of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value

if TYPE_CHECKING:
    from hermes_agent.knowledge.memory import Memory


_NEARLY_FULL = 0.9
"""The share of the room from which on a person decides what is dropped."""


def memory(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.approvals.targets import outside_source
    from hermes_agent.knowledge.memory import MemoryFull, MemoryRefused, MemoryStore, is_unconfirmed

    if ctx.person_id is None or ctx.db.ledger.owner(ctx.conversation_id) != ctx.person_id:
        return ToolResult("There is no memory here: this conversation does not belong to one person alone.", True)
    target = args.get("target", "memory")
    operations = args.get("operations") or [
        {name: args[name] for name in ("action", "content", "old_text") if name in args}
    ]
    store = MemoryStore(ctx.home, ctx.person_id, settings=ctx.config.memory, limits=ctx.config.limits)

    def source(content: str) -> str:
        return outside_source(
            ctx.db, content, conversation_id=ctx.conversation_id, turn_id=ctx.turn_id, person_id=ctx.person_id
        )

    try:
        text = store.text(target)
        before, after = store.planned(target, operations, source=source)
        lost = set(before.entries) - set(after.entries)
        if ctx.config.memory.write_approval or (lost and before.used > _NEARLY_FULL * before.limit):
            return _proposed(ctx, text, after, lost)
        kept = store.apply(target, operations, source=source)
    except MemoryRefused as error:
        listing = f"\n{_listed(error.memory)}" if error.memory else ""
        merge = ""
        if isinstance(error, MemoryFull) and error.memory is not None:
            ctx.notify(_full(error.memory))
            merge = "\nThe person was told. Replace or remove entries to make room: they see that and decide."
        return ToolResult(f"Nothing was changed: {error.one_line()}{merge}{listing}", is_error=True)
    waits = sum(map(is_unconfirmed, kept.entries))
    note = f"\n{waits} of them came from outside: the person confirms with /memory confirm TEXT." if waits else ""
    return ToolResult(f"Done. {_listed(kept)}{note}", shown=f"{len(kept.entries)} entries")


def _proposed(ctx: ToolContext, before: str | None, after: Memory, lost: set[str]) -> ToolResult:
    """Let the person decide: where room is short, what goes is their choice."""
    from hermes_agent.knowledge.memory import as_text

    assert ctx.person_id is not None, "`memory` checks it"
    why = "your memory is nearly full, and this makes room" if lost else "worth remembering"
    made = ctx.db.proposals.add(
        "memory", after.target, before=before, after=as_text(after), why=why, person_id=ctx.person_id,
        conversation_id=ctx.conversation_id,
    )  # fmt: skip
    said = f"Proposed as {made.id}: nothing is changed until the person accepts it (/proposals). Go on without it."
    return ToolResult(said, shown=f"proposal {made.id}: /proposals shows it")


def _full(memory: Memory) -> str:
    used = f"{memory.used:,} of {memory.limit:,} characters"
    return f"My memory of you is full ({used}), so I did not keep something. /memory shows it; ask me what to merge."


def _listed(kept: Memory) -> str:
    entries = "\n".join(f"- {entry}" for entry in kept.entries)
    number = len(kept.entries)
    size = f"{number} {'entry' if number == 1 else 'entries'}, {kept.used} of {kept.limit} characters"
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
        " learned about their projects and tools (target memory). Short entries that will still matter in weeks; no"
        " progress, logs or secrets. Room is small: replace or remove entries when it is full."
    ),
    parameters=parameters(
        **_OPERATION,
        target=value("string", "Default memory.", enum=["memory", "user"]),
        operations={
            "type": "array",
            "maxItems": 50,
            "description": "Several changes of one target at once: all of them are made or none.",
            "items": parameters("action", **_OPERATION),
        },
    ),
    handler=memory,
    roles=frozenset({"owner", "admin", "member"}),
    summary=lambda args: " ".join(str(args.get(name, "")) for name in ("action", "content", "old_text")).strip(),
)
