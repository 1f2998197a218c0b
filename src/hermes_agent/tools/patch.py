"""`patch`: change parts of files, by a text to replace or by a patch over several files (see `patch_files`)."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult


async def patch(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent.tools import patch_files  # whoever only lists tools does not pay for it

    return await patch_files.run(args, ctx)


TOOL = Tool(
    name="patch",
    toolset="file",
    description=(
        "Change parts of files. Mode replace (default): `old_string` in `path` becomes `new_string`; it must be found"
        " exactly once unless replace_all is set, small differences in blanks are forgiven. Mode patch: `patch` is a"
        " unified diff or a `*** Begin Patch` text with *** Add/Update/Delete File sections, over any number of files."
        " All of it is applied or nothing."
    ),
    parameters={
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["replace", "patch"], "description": "Default replace."},
            "path": {"type": "string", "minLength": 1, "description": "replace: the file."},
            "old_string": {"type": "string", "description": "replace: the text to find, with some lines around it."},
            "new_string": {"type": "string", "description": "replace: what it becomes; empty removes it."},
            "replace_all": {"type": "boolean", "description": "replace: every place, not exactly one."},
            "patch": {"type": "string", "description": "patch: the text of the patch."},
        },
    },
    handler=patch,
    roles=frozenset({"owner", "admin"}),
    summary=lambda args: str(args.get("path") or "several files"),
)
