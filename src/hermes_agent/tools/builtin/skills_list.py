"""`skills_list`: lists the skills by category."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value


def skills_list(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.knowledge import skills  # reads front matter, which needs a YAML parser

    found = skills.discover(ctx.config, platform=ctx.platform)
    wanted = args.get("category")
    texts = found.by_category(wanted)
    if not texts:
        known = sorted({skill.category for skill in found.skills})
        hint = f" Categories: {', '.join(known)}." if known else ""
        return ToolResult(f"There are no skills{f' in {wanted}' if wanted else ''}.{hint}", shown="none")
    number = sum(text.count("\n") for text in texts)
    return ToolResult("\n".join([*texts, "Load one with skill_view before you use it."]), shown=f"{number} skills")


TOOL = Tool(
    name="skills_list",
    toolset="skills",
    description="List the skills: instructions for kinds of work that somebody wrote down. Load one with skill_view.",
    parameters=parameters(category=value("string", "Only the skills of this category.")),
    handler=skills_list,
    changes=False,
    roles=frozenset({"owner", "admin", "member"}),
    listed=False,
    summary=lambda args: str(args.get("category", "")),
)
