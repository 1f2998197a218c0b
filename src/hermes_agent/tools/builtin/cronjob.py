"""`cronjob`: schedules and reminders of the person who asks."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.base import Tool, ToolContext, ToolResult, parameters, value

_ACTIONS = ("add", "list", "pause", "resume", "remove", "run")


def cronjob(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    from hermes_agent import jobs  # listing tools does not need it

    action, person = args["action"], None if ctx.person_id is None else ctx.db.people.get(ctx.person_id)
    if person is None:
        return ToolResult("Jobs belong to a person, and this conversation has none.", is_error=True)
    if action == "list":
        found = ctx.db.jobs.list(person_id=person.id, limit=ctx.db.limits.jobs)
        return ToolResult("\n".join(map(jobs.line, found)) or "There are no jobs.")
    if action != "add":
        return ToolResult(jobs.act(ctx.db, action, jobs.find(ctx.db, args.get("id") or "", person)))
    wanted = jobs.JobRequest(
        schedule=args.get("schedule") or "", prompt=args.get("prompt") or "", text=args.get("reminder") or "",
        name=args.get("name") or "",
    )  # fmt: skip
    here = ctx.db.inbox.address(ctx.turn_id)
    address = jobs.address_for(ctx.db, ctx.config, person, here, to=args.get("to") or "")
    job = jobs.make(ctx.db, ctx.config, person, wanted, address, conversation_id=ctx.conversation_id)
    return ToolResult(f"Added: {jobs.line(job)}. Answers go to {jobs.goes_to(job)}.", shown=jobs.line(job))


TOOL = Tool(
    name="cronjob",
    toolset="cronjob",
    description=(
        "Reminders and scheduled tasks of this person. A task runs in a new conversation, so make it complete; its"
        " answer is sent to this chat."
    ),
    parameters=parameters(
        "action",
        action=value("string", "What to do.", enum=list(_ACTIONS)),
        schedule=value("string", "'in 20 minutes', 'every weekday at 8', 'every 2h', or cron."),
        prompt=value("string", "The task."),
        reminder=value("string", "Or a text to send as it is."),
        name=value("string", "A short name."),
        to=value("string", "Another chat of theirs, PLATFORM:CHAT."),
        id=value("string", "The job."),
    ),
    handler=cronjob,
    roles=frozenset({"owner", "admin", "member"}),
    targets=("to",),
    summary=lambda args: " ".join(filter(None, (args.get("action"), args.get("schedule") or args.get("id")))),
)
