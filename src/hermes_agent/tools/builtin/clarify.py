"""`clarify`: a question to the person in the middle of a turn."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value

_MOST_CHOICES = 6


async def clarify(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    nobody = ToolResult(
        "Nobody can be asked here. Decide yourself, say what you assumed, and go on.", shown="nobody to ask"
    )
    if ctx.ask is None:
        return nobody
    choices = tuple(choice.strip() for choice in args.get("choices", ()) if choice.strip())
    answer = await ctx.ask(args["question"], choices)
    if answer is None:
        return nobody
    if not answer.strip():
        return ToolResult("The person gave no answer. Decide yourself, say what you assumed, and go on.")
    return ToolResult(f"The person answers: {answer}", shown=answer, is_answer=True)


TOOL = Tool(
    name="clarify",
    toolset="clarify",
    description=(
        "Ask the person one question and wait for the answer, when only they can decide how the work goes on. They can"
        " always answer in their own words. Not for what you can find out, nor for permission to run a command."
    ),
    parameters=parameters(
        "question",
        question=value("string", "The question, complete in itself.", minLength=1),
        choices=value("array", "Answers to choose from.", maxItems=_MOST_CHOICES, items={"type": "string"}),
    ),
    handler=clarify,
    changes=False,
    own_timeout=True,
    summary=lambda args: str(args.get("question", "")),
)
