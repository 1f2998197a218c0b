"""/cron and /remind: a person's scheduled jobs and reminders. `hermes_agent.jobs` does the work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_agent.commands.base import CommandContext

if TYPE_CHECKING:
    from hermes_agent.jobs import JobRequest
    from hermes_state.turns.jobs import Job

_USAGE = (
    "/cron lists your jobs; /cron add every weekday at 8 TASK; /cron show, pause, resume, run, remove or ledger ID."
)
_SHOWN = 15
_TO = re.compile(r"^--to[\s=]+(\S+)\s*|\s+--to[\s=]+(\S+)$")


def remind(ctx: CommandContext, args: str) -> str:
    """Send a text later: `/remind in 20 minutes take out the pizza`."""
    from hermes_agent import jobs, schedules  # needed for these commands only

    said, to = _aim(args)
    said = re.sub(r"^me\s+", "", said)
    if not said:
        return "/remind WHEN TEXT, such as /remind in 20 minutes take out the pizza"
    schedule, text = schedules.split(said, now=ctx.db.clock(), zone=jobs.zone_of(ctx.person, ctx.config))
    if not text:
        return "Of what? /remind in 20 minutes take out the pizza"
    job = _make(ctx, jobs.JobRequest(schedule=schedule, text=text), to)
    then = f"{jobs.when(job)} ({job.zone})"
    if job.kind != "once":
        then = f"{job.schedule}, first on {then}"
    where = "here" if ctx.route == job.route else f"in {jobs.goes_to(job)}"
    return " ".join([f"I will remind you {where}: {then}. /cron remove {job.id[:6]} cancels it.", *_notes(ctx, job)])


def cron(ctx: CommandContext, args: str) -> str:
    """List, add, pause, resume, run and remove jobs; show what became of their runs."""
    from hermes_agent import jobs, schedules

    verb, _, rest = args.strip().partition(" ")
    if verb in ("", "list"):
        return _list(ctx, rest)
    if verb in ("add", "create"):
        said, to = _aim(rest)
        schedule, prompt = schedules.split(said, now=ctx.db.clock(), zone=jobs.zone_of(ctx.person, ctx.config))
        job = _make(ctx, jobs.JobRequest(schedule=schedule, prompt=prompt), to)
        where = "come here" if ctx.route == job.route else f"go to {jobs.goes_to(job)}"
        return " ".join([f"Added: {jobs.line(job)}. Its answers {where}.", *_notes(ctx, job)])
    if verb in ("ledger", "history", "runs"):
        return _ledger(ctx, rest)
    if verb not in ("show", "pause", "resume", "run", "remove", "rm", "delete"):
        return _USAGE
    job = jobs.find(ctx.db, rest, ctx.person)
    if verb == "show":
        return "\n".join([jobs.line(job), *filter(None, map(job.task.get, ("text", "prompt"))), _ledger(ctx, rest)])
    return " ".join([jobs.act(ctx.db, verb, job), *_notes(ctx)])


def _list(ctx: CommandContext, wanted: str) -> str:
    from hermes_agent import jobs

    page = int(wanted) if wanted.isdecimal() and 0 < len(wanted) < 6 else 1
    found = ctx.db.jobs.list(person_id=ctx.person.id, limit=_SHOWN + 1, offset=max(0, page - 1) * _SHOWN)
    lines = [jobs.line(job) for job in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"… /cron list {page + 1} shows more.")
    return "\n".join(lines) or ("There are no more jobs." if page > 1 else f"You have no jobs. {_USAGE}")


def _ledger(ctx: CommandContext, wanted: str) -> str:
    from hermes_agent import jobs

    named = wanted.strip()
    job_id = jobs.find(ctx.db, named, ctx.person).id if named else None
    rows = ctx.db.jobs.ledger(job_id, person_id=ctx.person.id, limit=_SHOWN)
    newest = sorted(rows, key=lambda row: (float(row.about.get("instant") or row.received_at), row.id), reverse=True)
    return "\n".join(f"{jobs.outcome_line(row)}  {row.about.get('name', '')}" for row in newest) or "No runs yet."


def _aim(args: str) -> tuple[str, str]:
    """(the words, the chat) of `WHEN TEXT --to PLATFORM:CHAT`."""
    found = _TO.search(args.strip())
    return (_TO.sub("", args.strip(), count=1), found[1] or found[2]) if found else (args.strip(), "")


def _make(ctx: CommandContext, wanted: JobRequest, to: str) -> Job:
    from hermes_agent import jobs

    any_chat = _at_terminal(ctx) and ctx.person.role == "owner"
    address = jobs.address_for(ctx.db, ctx.config, ctx.person, ctx.address, to=to, any_chat=any_chat)
    return jobs.make(ctx.db, ctx.config, ctx.person, wanted, address)


def _notes(ctx: CommandContext, job: Job | None = None) -> list[str]:
    from hermes_agent import jobs
    from hermes_config.home import gateway_runs

    idle = _at_terminal(ctx) and not gateway_runs(ctx.config.home)
    said = [jobs.doubt(ctx.db, job) if job else "", jobs.NO_GATEWAY if idle else ""]
    return [note for note in said if note]


def _at_terminal(ctx: CommandContext) -> bool:
    return ctx.surface in ("cli", "tui")
