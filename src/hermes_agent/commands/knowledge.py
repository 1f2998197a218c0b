"""/memory, /skills, `/<skill>` and /proposals: what the agent knows, and changes of it that wait for a yes."""

from __future__ import annotations

import asyncio

from hermes_agent.commands.base import STAFF, CommandContext
from hermes_agent.knowledge import proposals as made
from hermes_agent.text import brief, columns, skill_request
from hermes_config.errors import UsageError

_SHOWN = 20


def memory(ctx: CommandContext, args: str) -> str:
    """Show this person's memory, or confirm or forget one entry."""
    from hermes_agent.knowledge.memory import MemoryStore  # needed for this answer only

    store = MemoryStore(ctx.config.home, ctx.person.id, settings=ctx.config.memory, limits=ctx.config.limits)
    verb, _, piece = args.strip().partition(" ")
    if verb == "confirm":
        return f"Confirmed: {brief(store.confirm(piece), 300)}"
    if verb == "forget":
        target, entry = store.find(piece)
        store.apply(target, [{"action": "remove", "old_text": entry}])
        return f"Forgotten: {brief(entry, 300)}"
    parts = []
    for heading, kept in (("Notes", store.read("memory")), ("About you", store.read("user"))):
        if kept.entries:
            used = f"{heading} ({kept.used:,} of {kept.limit:,} characters)"
            parts.append("\n".join([used, *(f"· {brief(entry, 300)}" for entry in kept.entries)]))
    return "\n\n".join(parts) or "Nothing is remembered of you yet. Say “remember that …”."


def skills(ctx: CommandContext, args: str) -> str:
    """List the skills."""
    from hermes_agent.knowledge import skills as known  # needed for this answer only

    found = known.discover(ctx.config, platform=ctx.platform)
    if not found.skills:
        # Only people at this machine see the path of the home.
        where = ctx.config.home / "skills" if ctx.surface in ("cli", "tui") else "the folder `skills` of the home"
        return f"There are no skills. They are folders with a SKILL.md in {where}."
    return columns([(skill.name, brief(skill.description, 90)) for skill in found.skills])


def proposals(ctx: CommandContext, args: str) -> str:
    """List what was proposed, show one, or decide about it."""
    verb, number, text = (*args.split(maxsplit=2), "", "", "")[:3]
    if not verb:
        whose = "" if ctx.person.role in STAFF else ctx.person.id
        waiting = ctx.db.proposals.list(state="open", person_id=whose, limit=1_000)
        mine = [one for one in waiting if made.may_decide(one, ctx.person)]
        lines = [made.line(one) for one in mine[:_SHOWN]]
        if not lines:
            return "Nothing is proposed. A change of a skill, or of a full memory, waits here for your yes."
        return "\n".join([*lines, "/proposals show ID, then accept, refuse or edit ID TEXT; undo ID takes one back."])
    if verb == "show":
        found = ctx.db.proposals.get(number)
        if found is None or not made.may_decide(found, ctx.person):
            raise UsageError(f"there is no proposal {brief(number, 20)!r} that you could decide about")
        return made.card(found)
    if verb not in made.CHOICES or not number:
        return "/proposals [show|accept|refuse|undo ID], /proposals edit ID TEXT"
    return made.decide(ctx.db, ctx.config, number, verb, ctx.person, text=text)


def skill_names(ctx: CommandContext) -> list[str]:
    """The skills that this person can use as commands."""
    from hermes_agent.knowledge import skills

    if ctx.person.role == "guest":
        return []
    found = skills.discover(ctx.config, platform=ctx.platform)
    return [one.name.lower() for one in found.skills]


async def use_skill(ctx: CommandContext, name: str, args: str) -> str | None:
    """Ask the model to use the skill that a command names; the answer if there is none, or it may not be used."""
    from hermes_agent.knowledge import skills

    found = await asyncio.to_thread(skills.discover, ctx.config, platform=ctx.platform)
    skill = next((one for one in found.skills if one.name.lower().replace("_", "-") == name.replace("_", "-")), None)
    if skill is None:
        return None
    if ctx.person.role == "guest":
        return "Skills are not for guests."
    if ctx.busy:
        return f"A turn is running. /stop it, then /{name}."
    await ctx.run_turn(skill_request(skill.name, args))
    return ""
