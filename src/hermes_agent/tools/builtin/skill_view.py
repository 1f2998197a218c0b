"""`skill_view`: a skill's instructions, or one of the files that belong to it."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value


def skill_view(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.knowledge import skills  # reads front matter, which needs a YAML parser

    file = args.get("file_path")
    view = skills.discover(ctx.config, platform=ctx.platform).view(args["name"], file)
    parts = [view.content.rstrip()]
    if view.files and file is None:
        parts.append(
            f"[files of this skill, for file_path: {', '.join(view.files)}; its folder is {view.skill.folder}]"
        )
    return ToolResult("\n\n".join(parts), shown=f"{view.skill.name}/{view.file}")


TOOL = Tool(
    name="skill_view",
    toolset="skills",
    description=(
        "Load a skill before doing the kind of work it is for, and follow it. With file_path load one of its files"
        " (references/…, templates/…, scripts/…)."
    ),
    parameters=parameters(
        "name",
        name=value("string", "The skill, as skills_list names it.", minLength=1),
        file_path=value("string", "A file inside the skill's folder. Default SKILL.md."),
    ),
    handler=skill_view,
    changes=False,
    roles=frozenset({"owner", "admin", "member"}),
    summary=lambda args: str(args.get("name", "")),
)
