"""`hermes cron`: jobs and reminders, and the ledger of their runs.

Jobs run while a gateway of this store runs; without one, the commands say so.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hermes_agent import jobs, jobs_file, schedules
from hermes_cli.framework import output, prompts, store
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_offset, positive
from hermes_cli.operate.messages import gateway_runs
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_state import SessionDB
from hermes_state.turns.jobs import Job, Occurrence

_JOBS = output.columns("Job", "Name…16", "When…16", "Next", "Goes to…14", "Last")
_RUNS = output.columns("Due", "Outcome", "Job…12", "Text or reason…16", "Conversation")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    _register_add(verbs)
    listing = verbs.add("list", _list, "list jobs, oldest first", "", "--all --json", db=True, json=True, limit=50)
    listing.add_argument("--all", action="store_true", help="also jobs that will not run again")
    add_offset(listing)
    for name, about in (
        ("show", "show one job and its last runs"),
        ("pause", "stop a job until hermes cron resume; nothing is missed meanwhile"),
        ("resume", "let a paused job run again"), ("run", "run a job once now, beside its schedule"),
        ("remove", "remove a job; its ledger stays"),
    ):  # fmt: skip
        run, example = _show if name == "show" else _act, "3f9a1c --yes" if name == "remove" else "3f9a1c"
        verb = verbs.add(name, run, about, example, db=True, json=True, yes=name == "remove")
        verb.add_argument("job", metavar="JOB", help="its id, the beginning of it, or its name")
        verb.set_defaults(verb=name)
    take = verbs.add(
        "import", _import, "take over the jobs of cron/jobs.json in this home", "--yes", json=True, yes=True
    )
    take.add_argument("file", nargs="?", metavar="FILE", help="another jobs.json of hermes-agent; it is not changed")
    about = "show every run and its outcome, newest first"
    ledger = verbs.add("ledger", _ledger, about, "", "3f9a1c", "--json", db=True, json=True, limit=20)
    ledger.add_argument("job", nargs="?", metavar="JOB", help="only of this job: its id, the beginning, its name")
    ledger.add_argument("--before", type=positive, metavar="ROW", help="only older ones: the next page")


def _register_add(verbs: Verbs) -> None:
    add = verbs.add(
        "add", _add, "add a job, or a reminder with --text",
        "'every weekday at 7:30' 'Summarise the news.' --name Briefing", "'in 20 minutes' --text 'Take out the pizza'",
        "'0 3 * * *' 'Tell me what is wrong.' --script './check-backup.sh'", json=True,
    )  # fmt: skip
    add.add_argument("schedule", metavar="WHEN", help=schedules.EXAMPLES.replace("%", "%%"))
    add.add_argument("prompt", nargs="?", default="", metavar="TASK", help="what the model is asked")
    add.add_argument("--text", default="", help="a reminder: this text is sent, and no model is asked")
    add.add_argument("--name", default="", help="a short name")
    add.add_argument("--to", default="", metavar="TARGET", help="PLATFORM or PLATFORM:CHAT (default: the home chat)")
    add.add_argument("--deliver", dest="to", metavar="TARGET", help=argparse.SUPPRESS)
    script = "a command that runs first, confined, in the workspace; the model reads its output; no output: no run"
    add.add_argument("--script", default="", metavar="COMMAND", help=script)
    add.add_argument("--skill", action="append", default=[], metavar="NAME", help="a skill to load first")
    add.add_argument("--model", metavar="NAME", help="the model of its turns")
    add.add_argument("--provider", metavar="NAME", help="the provider of that model")
    add.add_argument("--tools", metavar="A,B", help="the only toolsets of its turns")
    add.add_argument("--budget", type=_dollars, metavar="USD", help="the most that one run may cost")
    missed = "what /catchup runs after an outage: latest (default), skip, or how many"
    add.add_argument("--missed", default="latest", metavar="RULE", help=missed)


def _dollars(typed: str) -> float:
    """An argument that must be an amount in dollars of more than 0."""
    try:
        amount = float(typed.removeprefix("$"))
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e6:
        raise argparse.ArgumentTypeError(f"must be dollars, more than 0, such as 0.50, not {typed[:40]!r}")
    return amount


def _add(args: argparse.Namespace) -> CommandAnswer:
    loaded = config.load()
    wanted = jobs.JobRequest(
        schedule=args.schedule, prompt=args.prompt, text=args.text, name=args.name, script=args.script,
        skills=tuple(args.skill), model=args.model, provider=args.provider, budget_usd=args.budget,
        toolsets=None if args.tools is None else tuple(filter(None, map(str.strip, args.tools.split(",")))),
        missed=args.missed,
    )  # fmt: skip
    _check_names(loaded, wanted)
    with store.open_store(create=True) as db:
        owner = db.people.owner()
        to = "" if args.to in ("origin", "local") else args.to
        address = jobs.address_for(db, loaded, owner, None, to=to, any_chat=True)
        if args.to == "local":
            address = jobs.local_address()
        job = jobs.make(db, loaded, owner, wanted, address)
        doubt = jobs.doubt(db, job)
    where = f"{'It is sent' if args.text else 'Its answers go'} to {jobs.goes_to(job)}."
    if jobs.goes_to(job) == "the ledger":
        where = "There is no home chat: hermes cron ledger shows its answers (--to PLATFORM:CHAT sends them)."
    said = (f"Added {job.id}: {job.name}, {jobs.times(job)}.", where)
    zone = "Times are this machine's; hermes people zone owner Europe/Lisbon sets yours, for the next job."
    return CommandAnswer(
        _document(job), *said, *([] if owner.zone else [zone]), notes=[*filter(None, [doubt]), *_notes()]
    )


def _check_names(loaded: config.Config, wanted: jobs.JobRequest) -> None:
    """Refuse names that do not exist, which would fail at the first run."""
    if wanted.toolsets is not None:
        from hermes_cli.maintenance.inspect import check_toolsets

        check_toolsets(wanted.toolsets, where="--tools")
    if wanted.skills:
        from hermes_agent.knowledge import skills

        known = skills.discover(loaded)
        for name in wanted.skills:
            known.get(name, listed_by="hermes skills list")
    if wanted.provider and not wanted.model:
        raise UsageError("--provider needs --model", hint="Such as --provider ollama --model qwen3:8b.")
    if wanted.model:
        from hermes_agent.models import providers

        providers.primary(loaded, model=wanted.model, provider=wanted.provider)


def _notes() -> list[str]:
    return [] if gateway_runs() else [jobs.NO_GATEWAY]


def _document(job: Job) -> dict[str, Any]:
    return asdict(job) | {"goes_to": jobs.goes_to(job)}


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    found = db.jobs.list(done=args.all, limit=args.limit, offset=args.offset)
    rows = []
    for job in found:
        last = db.jobs.ledger(job.id, limit=1)
        ended = last[0].outcome if last else "—"
        rows.append((job.id[:6], job.name, job.schedule, jobs.when(job), jobs.goes_to(job), ended))
    notes = _notes()
    if len(found) == args.limit:
        notes.append(f"--offset {args.offset + args.limit} shows more.")
    nothing = "There are no jobs. hermes cron add 'every weekday at 8' 'Summarise the news.' makes one."
    if args.offset:
        nothing = "There are no more jobs."
    document = {"jobs": [_document(job) for job in found], "gateway": gateway_runs()}
    return output.list_answer(document, _JOBS, rows, nothing=nothing, notes=notes if found else ())


def _show(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    job = jobs.find(db, args.job)
    runs = db.jobs.ledger(job.id, limit=5)
    task, budget = job.task, job.task.get("budget_usd")
    rows = (
        ("job", job.id), ("name", job.name), ("when", f"{job.schedule} ({job.zone})"), ("next", jobs.when(job)),
        ("goes to", jobs.goes_to(job)), ("script", task.get("script")), ("model", task.get("model")),
        ("tools", ", ".join(task.get("toolsets") or ())), ("budget", f"${budget}" if budget else ""),
        ("if missed", job.missed), ("person", job.person_id), ("made", schedules.wall_clock(job.made_at, job.zone)),
        *(("run", jobs.outcome_line(run)) for run in runs),
    )  # fmt: skip
    body = str(task.get("text") or task.get("prompt") or "")
    document = _document(job) | {"runs": [_run_document(db, run) for run in runs]}
    return CommandAnswer(document, drawn=output.facts(rows, body), notes=_notes())


def _act(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    """`pause`, `resume`, `run` or `remove`."""
    job, verb = jobs.find(db, args.job), args.verb
    if verb == "remove":
        prompts.confirm(f"Remove the job {job.name} ({job.schedule})?", yes=args.yes)
    said, now = jobs.act(db, verb, job, typed="hermes cron"), db.jobs.get(job.id)
    document = {"id": job.id, "state": "removed" if now is None else now.state, "next_at": now and now.next_at}
    return CommandAnswer(document, said, notes=_notes())


def _import(args: argparse.Namespace) -> CommandAnswer:
    loaded = config.load()
    file = loaded.home / "cron" / "jobs.json" if args.file is None else Path(args.file)
    try:
        found = jobs_file.rows(file)
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}", hint="Name the jobs.json: hermes cron import FILE.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"the jobs cannot be read: {why}", where=str(file), hint="It is unchanged.") from None
    names = [jobs_file.name_of(row) for row in found if jobs_file.is_new(row)]
    if not names:
        none = "Nothing new: its jobs were taken over before, or have ended." if found else "There are no jobs in it."
        return CommandAnswer({"taken": [], "left": []}, none)
    prompts.confirm(f"Let Hermes run the jobs {', '.join(names)}?", yes=args.yes)
    with store.open_store(create=True) as db:
        done = jobs_file.take(db, loaded, file, keep=args.file is not None)
    return CommandAnswer({"taken": done.names, "left": done.left}, *taken_lines(done), notes=_notes())


def taken_lines(done: jobs_file.Taken) -> list[str]:
    taken = [f"Taken over: {', '.join(done.names)}."] if done.names else []
    return [*taken, *(f"Not taken: {name}: {reason}." for name, reason in done.left)]


def _ledger(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    job_id = _id_in_ledger(db, args.job) if args.job else None
    runs = db.jobs.ledger(job_id, before=args.before, limit=args.limit)
    rows = []
    for run in sorted(runs, key=lambda run: -float(run.about.get("instant") or run.received_at)):
        due = schedules.wall_clock(float(run.about.get("instant") or run.received_at), run.zone)
        gone = run.about.get("missed")
        why = run.error or run.reason
        said = jobs.gap(gone, run.zone) if gone else why if run.outcome == "failed" and why else _answer(db, run) or why
        name, said = str(run.about.get("name") or "—"), output.beginning(said or "—")
        rows.append((due, run.outcome, name, said, run.session_id or "—"))
    notes = _notes()
    if len(runs) == args.limit:
        notes.append(f"--before {runs[-1].id} shows older ones.")
    document = {"runs": [_run_document(db, run) for run in runs]}
    nothing = "No job has run yet." if args.before is None else "There are no older runs."
    return output.list_answer(document, _RUNS, rows, nothing=nothing, notes=notes if runs else ())


def _id_in_ledger(db: SessionDB, wanted: str) -> str:
    """The id of a job; also of one that was removed, while its runs are kept."""
    try:
        return jobs.find(db, wanted).id
    except jobs.NoSuchJob:
        if not db.jobs.ledger(wanted.strip(), limit=1):
            raise
        return wanted.strip()


def _run_document(db: SessionDB, run: Occurrence) -> dict[str, Any]:
    return asdict(run) | {"outcome": run.outcome, "text": _answer(db, run)}


def _answer(db: SessionDB, run: Occurrence) -> str:
    """The answer of a run; without a chat, it is only in its conversation."""
    if run.text or run.outcome != "answered" or run.session_id is None:
        return run.text
    said = [row for row in db.get_messages(run.session_id) if row["role"] == "assistant"]
    return str(said[-1]["content"] or "") if said else ""
