"""`skill_manage`: propose a new, changed or removed skill; a person decides about it."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value


def skill_manage(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.approvals.targets import outside_source
    from hermes_agent.knowledge import proposals, skills
    from hermes_state.conversations import origins

    if ctx.person_id is None:
        return ToolResult("There is nobody here who could decide about it.", is_error=True)
    most = ctx.config.limits.skill_file_bytes
    if len(str(args.get("content") or "")) > most:  # in characters; `propose_skill` counts the bytes
        return ToolResult(f"Nothing was proposed: a file of a skill has at most {most:,} bytes", is_error=True)
    action, name, file = args["action"], str(args["name"]).strip(), args.get("file_path") or skills.MAIN
    category = str(args.get("category") or "")
    if action != "create":
        known = skills.discover(ctx.config, platform=ctx.platform).get(name)
        name, category = known.folder.name, "" if known.category == skills.GENERAL else known.category
    try:
        path = proposals.skill_path(name, category=category, file=file)
        after = None if action == "delete" else _text(args, proposals.read_skill(ctx.config, path))
        read = outside_source(
            ctx.db, after or "", conversation_id=ctx.conversation_id, turn_id=ctx.turn_id, person_id=ctx.person_id
        )
        made = proposals.propose_skill(
            ctx.db, ctx.config, path, after, why=str(args.get("why") or f"{action} {name}"), person_id=ctx.person_id,
            conversation_id=ctx.conversation_id, origin=origins.outside(read) if read else None,
        )  # fmt: skip
    except proposals.ProposalRefused as error:
        return ToolResult(f"Nothing was proposed: {error.one_line()}", is_error=True)
    said = f"Proposed as {made.id}. Nothing is changed until the person accepts it (/proposals). Go on without it."
    return ToolResult(said, shown=f"proposal {made.id}: /proposals shows it")


def _text(args: dict[str, Any], now: str | None) -> str:
    from hermes_agent.knowledge.proposals import ProposalRefused

    if (old := args.get("old_text")) is None:
        if not args.get("content"):
            raise ProposalRefused("content is missing")
        return f"{str(args['content']).rstrip()}\n"
    if now is None or now.count(str(old)) != 1:
        found = 0 if now is None else now.count(str(old))
        raise ProposalRefused(f"old_text occurs there {found} times", hint="Give a piece that occurs there once.")
    return now.replace(str(old), str(args.get("content") or ""))


TOOL = Tool(
    name="skill_manage",
    toolset="skills",
    description=(
        "Propose a skill: how to do a kind of task that will come again, learned from work that succeeded. Also propose"
        " a change or removal. The person sees the difference and decides."
    ),
    parameters=parameters(
        "action", "name",
        action=value("string", "What to propose.", enum=["create", "edit", "delete"]),
        name=value("string", "The skill: lower-case words with dashes.", minLength=1),
        content=value("string", "The whole text; SKILL.md begins with --- and has name and description."),
        old_text=value("string", "edit: replace this piece by content, instead of the whole text."),
        category=value("string", "create: its folder."),
        file_path=value("string", "references/…, templates/…, scripts/… or assets/…. Default SKILL.md."),
        why=value("string", "One sentence for the person."),
    ),
    handler=skill_manage,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: f"{args.get('action', '')} {args.get('name', '')}".strip(),
    repeatable=True,
    listed=False,
)  # fmt: skip
