"""What people, the model and other programs do with jobs: make, find, list, pause, resume, run and remove them.

A job with a `text` is a reminder: the text is sent, and no model is asked. Any other job starts a turn in a
conversation of its own. `row_of` makes the occurrence of either, for the scheduler and for a run by hand.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_agent import schedules
from hermes_agent.schedules import Missed, Schedule
from hermes_agent.text import brief
from hermes_cli import plugins
from hermes_config import accounts
from hermes_config.errors import HermesError, UsageError
from hermes_state.conversations import origins
from hermes_state.ids import LOCAL_OWNER, PLATFORMS, ConversationId, SessionKey
from hermes_state.turns.inbox import LOCAL, Address
from hermes_state.turns.jobs import Job, NewRow, Occurrence, message_id
from hermes_state.turns.outbox import NewOutboxItem

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.people.people import Person

NOT_FOR_JOBS = ("cronjob", "clarify")
"""Tools that a job's turn never has: it makes no further jobs, and nobody is there to answer."""
NO_GATEWAY = "No gateway is running, so no job runs (hermes gateway start)."
STAFF = frozenset({"owner", "admin"})
_LONGEST_PROMPT = 20_000
_WORDS = 6
_TRIES = 5
_LOOKED_AT = 110
"""How many runs /catchup looks at: the most that it runs, and some later ones."""


class NoSuchJob(HermesError):
    """There is no such job."""

    default_hint = "hermes cron list shows them."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job that somebody wants."""

    schedule: str | Schedule
    prompt: str = ""
    text: str = ""
    """For a reminder: what is sent."""
    name: str = ""
    script: str = ""
    skills: tuple[str, ...] = ()
    model: str | None = None
    provider: str | None = None
    toolsets: tuple[str, ...] | None = None
    budget_usd: float | None = None
    missed: str = "latest"

    def task(self) -> dict[str, Any]:
        if self.text:
            return {"text": self.text}
        kept = {
            "prompt": self.prompt, "script": self.script, "skills": list(self.skills), "model": self.model,
            "provider": self.provider, "toolsets": None if self.toolsets is None else list(self.toolsets),
            "budget_usd": self.budget_usd,
        }  # fmt: skip
        return {name: value for name, value in kept.items() if value not in (None, "", [])}


def make(
    db: SessionDB,
    config: Config,
    person: Person,
    wanted: JobRequest,
    address: Address,
    *,
    conversation_id: ConversationId | None = None,
    job_id: str | None = None,
    paused: bool = False,
) -> Job:
    """Store a job of this person. `paused`: it waits until somebody resumes it.

    Raises a `UsageError` that says what is wrong with the request.
    """
    now = db.clock()
    schedule = wanted.schedule
    if isinstance(schedule, str):
        schedule = schedules.parse(schedule, now=now, zone=zone_of(person, config))
    if not (wanted.prompt or wanted.text or wanted.script):
        raise UsageError("the job has nothing to do", hint="Say what to ask the model, or the text of a reminder.")
    if wanted.text and (wanted.prompt or wanted.script):
        raise UsageError("a reminder sends its text and does nothing else", hint="Leave out the text, or the task.")
    if max(map(len, (wanted.prompt, wanted.text, wanted.script))) > _LONGEST_PROMPT:
        raise UsageError(f"that is longer than {_LONGEST_PROMPT:,} characters", hint="Put it into a file.")
    if wanted.script and person.role not in STAFF:
        raise UsageError("a script is for the owner and admins", hint="Leave it out.")
    if wanted.missed not in ("latest", "skip") and not (wanted.missed.isdecimal() and 0 < int(wanted.missed) <= 100):
        raise UsageError(f"no such rule for missed runs: {wanted.missed[:20]!r}", hint="latest, skip, or 1 to 100.")
    if wanted.text and address.platform == LOCAL:
        raise UsageError(
            "a reminder needs a chat", hint="Name one: --to PLATFORM:CHAT (hermes gateway setup connects a platform)."
        )
    task = wanted.task()
    if conversation_id is None and job_id is None:  # a person typed it; else the model did, or another program
        task["origin"] = origins.of_words(wanted.prompt, person.role)
    beginning = brief(" ".join((wanted.text or wanted.prompt or wanted.script).split()[:_WORDS]), 50)
    made = db.jobs.add(
        Job(
            id=job_id or secrets.token_hex(6), name=wanted.name or beginning, person_id=person.id,
            conversation_id=conversation_id, route=address.route, schedule=schedule.shown, kind=schedule.kind,
            expression=schedule.expression, zone=schedule.zone, task=task, address=address.to_dict(),
            missed=wanted.missed, state="paused" if paused else "active",
            next_at=None if paused else schedule.after(now),
        )
    )  # fmt: skip
    if made is None:
        raise UsageError(f"there is a job {job_id} already")
    return made


def zone_of(person: Person, config: Config) -> str:
    """The person's zone, else the configured one, else the machine's."""
    places = (config.tree, _section(config.tree.get("gateway")))
    named = [zone for place in places if isinstance(zone := place.get("timezone"), str)]
    return schedules.zone_name(person.zone, *named)


def schedule_of(job: Job) -> Schedule:
    return Schedule(job.kind, job.expression, job.zone, job.schedule)  # type: ignore[arg-type]


def find(db: SessionDB, wanted: str, person: Person | None = None) -> Job:
    """The job with this id, beginning of an id, or name; of one person only if it is given."""
    said = wanted.strip()
    jobs = db.jobs.list(person_id=None if person is None else person.id, done=True, limit=10_000)
    fits = [job for job in jobs if job.id == said]
    fits = fits or [job for job in jobs if job.name.lower() == said.lower()]
    fits = fits or [job for job in jobs if len(said) >= 2 and job.id.startswith(said.lower())]
    if len(fits) > 1:
        those = ", ".join(f"{job.id[:8]} ({job.schedule})" for job in fits[:5])
        raise UsageError(f"{len(fits)} jobs fit {said[:40]!r}", hint=f"Give the id: {those}{', …' * (len(fits) > 5)}.")
    if not fits:
        hint = "" if person is None else "/cron lists them."
        raise NoSuchJob(f"no job {said[:40]!r}" if said else "which job?", hint=hint)
    return fits[0]


def pause(db: SessionDB, job: Job) -> None:
    """Stop a job; instants that are due and were not run yet get their outcome now."""

    def paused(job: Job) -> bool:
        if job.state == "done":
            raise UsageError(f"{job.name!r:.60} has already run for the last time", hint=_once_more(job))
        return db.jobs.change(job, "paused", None, _left_rows(db, job, "paused"))

    _changed(db, job, paused)


def remove(db: SessionDB, job: Job) -> None:
    """Remove a job; its ledger stays, with an outcome for every instant until now."""
    _changed(db, job, lambda job: db.jobs.remove(job, _left_rows(db, job, "removed")))


def _changed(db: SessionDB, job: Job, change: Callable[[Job], bool]) -> None:
    """Change a job; if a gateway has settled an instant of it meanwhile, change it as it is now."""
    for _ in range(_TRIES):
        if change(job):
            return
        found = db.jobs.get(job.id)
        if found is None:
            raise NoSuchJob(f"{job.name!r:.60} was removed meanwhile")
        job = found
    raise UsageError(f"{job.name!r:.60} is being changed by others", hint="Try again.")


def _left_rows(db: SessionDB, job: Job, did: str) -> list[NewRow]:
    """The outcomes of a job's instants that are due and that nobody has settled."""
    now = db.clock()
    if job.state != "active" or job.next_at is None or job.next_at > now:
        return []
    try:
        settled = schedule_of(job).settle(job.next_at, now)
    except (UsageError, ValueError, ArithmeticError) as error:  # such a job can be removed, too
        return [replace(unreadable_row(job, error), reply=None)]
    late = [row_of(job, one.instant, late_after=one.late_after) for one in settled.fresh]
    why = f"the job was {did} before it ran"
    rows = [replace(row, outcome="silent", reason=why, reply=None) for row in late]
    return rows if settled.missed is None else [missed_row(job, settled.missed), *rows]


def resume(db: SessionDB, job: Job) -> float:
    """Let a paused job run again; instants of the pause are not made up for. Returns the next one."""
    if job.state != "paused":
        raise UsageError(f"{job.name!r:.60} is not paused: it is {job.state}")
    then = schedule_of(job).after(db.clock())
    if then is None:
        raise UsageError(f"{job.name!r:.60} has no run left", hint=_once_more(job))
    if not db.jobs.change(job, "active", then):
        raise UsageError(f"{job.name!r:.60} was changed meanwhile", hint="Look at it again.")
    return then


def _once_more(job: Job) -> str:
    return f"cron run {job.id[:6]} runs it once more."


def run_now(db: SessionDB, job: Job) -> bool:
    """Store one occurrence beside the schedule; a gateway runs it."""
    now = float(int(db.clock()))
    row = row_of(job, now, late_after=now + 86_400, key=f"run:{schedules.written(now)}", by="hand")
    return db.jobs.run_extra(job, [row]) == 1


def act(db: SessionDB, verb: str, job: Job, *, typed: str = "cron") -> str:
    """Pause, resume, run or remove a job; returns what happened, in one sentence. `typed`: the command to name."""
    if verb == "pause":
        pause(db, job)
        return f"{job.name} is paused; {typed} resume {job.id[:6]} continues it."
    if verb == "resume":
        return f"{job.name} runs again, next {schedules.wall_clock(resume(db, job), job.zone)} ({job.zone})."
    if verb == "run":
        new = run_now(db, job)
        when = "is due now" if new else "was run in this very second"
        return f"{job.name} {when}; {typed} ledger {job.id[:6]} shows it."
    remove(db, job)
    return f"{job.name} is removed; {typed} ledger {job.id} shows its runs."


# -- occurrences -----------------------------------------------------------------------------------------------------


def row_of(
    job: Job, instant: float, *, late_after: float, key: str = "", by: str = "schedule", held: bool = False
) -> NewRow:
    """The occurrence of a job at an instant. A scheduled reminder is answered at once; else it waits for a gateway.
    `held`: answers to its chat wait for the owner."""
    key, task = key or schedules.written(instant), job.task
    about = _about(job, instant, late_after=late_after, by=by)
    if text := task.get("text"):
        if by != "schedule":
            return NewRow(key=key, text=text, about=about)
        return NewRow(key=key, text=text, about=about, outcome="answered", reply=message(job, key, text, held=held))
    agent = {name: task[name] for name in ("model", "provider", "toolsets", "budget_usd") if name in task}
    about["origin"] = task.get("origin")
    about["agent"] = {**agent, "without": list(NOT_FOR_JOBS)}
    about["script"], about["skills"] = task.get("script", ""), task.get("skills", [])
    return NewRow(key=key, text=task.get("prompt", ""), about=about)


def _about(job: Job, instant: float, *, by: str = "schedule", **more: Any) -> dict[str, Any]:
    """The facts that an occurrence's row keeps."""
    return {"kind": "job", "job": job.id, "name": job.name, "instant": instant, "by": by, **more}


def missed_row(job: Job, missed: Missed) -> NewRow:
    """The one row that stands for every instant of a gap."""
    return NewRow(
        key=schedules.written(missed.first), text=str(job.task.get("text") or job.task.get("prompt") or ""),
        about=_about(job, missed.first, missed=asdict(missed)), outcome="missed",
        reason=f"no gateway was running; {gap(missed, job.zone)}",
    )  # fmt: skip


def unreadable_row(job: Job, error: Exception) -> NewRow:
    """The last row of a job whose schedule cannot be read: it is paused, and its chat is told."""
    instant = 0.0 if job.next_at is None else job.next_at
    why = error.what if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
    key, said = schedules.written(instant), f"it cannot be scheduled ({brief(why, 150)})"
    told = message(job, key, f"The scheduled job “{job.name}” is paused: {said}.")
    reason = f"{said}; the job is paused"
    return NewRow(key=key, text="", about=_about(job, instant), outcome="error", reason=reason, reply=told)


def message(job: Job, key: str, text: str, *, held: bool = False) -> NewOutboxItem | None:
    """What a job sends without a turn, under the key of its occurrence; None without a chat. `held`: when the owner
    has decided so."""
    address = job.address
    if address.get("platform", LOCAL) == LOCAL:
        return None
    payload: dict[str, Any] = {"text": text, "kind": "job"}
    if thread := (address.get("source") or {}).get("thread_id"):
        payload["thread_id"] = thread
    return NewOutboxItem(
        dedup_key=message_id(job.id, key), platform=address["platform"], account=address["account"],
        chat_id=address["chat_id"], payload=payload, held=held,
    )  # fmt: skip


def catch_up(db: SessionDB, route: SessionKey) -> list[tuple[Job, list[float]]]:
    """Missed instants of a chat's jobs that /catchup runs, by the rule of each job."""
    found = []
    for job in db.jobs.of_route(route):
        instants: list[float] = []
        for at, row in enumerate(db.jobs.ledger(job.id, limit=_LOOKED_AT) if caught_up(job) else ()):
            left = caught_up(job) - len(instants)
            if row.about.get("by") == "catchup" or not left or (at and caught_up(job) == 1):
                break
            if row.state == "missed":
                instant = float(row.about["instant"])
                gone = Missed(**(row.about.get("missed") or {"first": instant, "last": instant, "count": 1}))
                instants = [*schedule_of(job).latest(gone, left), *instants]
            elif instants:
                break
        if instants:
            found.append((job, instants))
    return found


def caught_up(job: Job) -> int:
    """How many missed instants /catchup runs. A job that runs only the latest one needs none after a later run."""
    return 1 if job.missed == "latest" else 0 if job.missed == "skip" else int(job.missed)


def run_missed(db: SessionDB, job: Job, instants: list[float]) -> int:
    late = db.clock() + 86_400
    rows = [
        row_of(job, at, late_after=late, key=f"catchup:{schedules.written(at)}", by="catchup") for at in instants
    ]  # fmt: skip
    return db.jobs.run_extra(job, rows)


# -- where the answers go --------------------------------------------------------------------------------------------


def local_address() -> Address:
    """For a job without a chat: its answers stay in the ledger and in its conversations."""
    source = {"platform": LOCAL, "chat_id": "cron", "chat_type": "dm", "user_id": "owner"}
    return Address(
        platform=LOCAL, account="", chat_id="cron", route=SessionKey("agent:main:local:cron"),
        person_id=LOCAL_OWNER, source=source,
    )  # fmt: skip


def address_for(
    db: SessionDB, config: Config, person: Person, here: Address | None, *, to: str = "", any_chat: bool = False
) -> Address:
    """Where the answers of a new job go: to the chat named `to`, which must be this person's; else here; for the
    owner at a terminal to their home chat, else nowhere. `any_chat`: for whoever sits at this machine, not for a
    model, `to` may be a chat of anybody."""
    if to.strip():
        return _named_chat(db, config, person, to.strip(), any_chat)
    if here is not None and here.source is not None and here.platform not in (LOCAL, "api_server"):
        return replace(here, person_id=person.id)
    if person.id != LOCAL_OWNER:  # who loses access to Hermes loses it to chats; such a job would run on
        raise UsageError("a job of yours needs a chat", hint="Write to Hermes in one, and name it: PLATFORM:CHAT.")
    return _home_chat(db, config, "") or local_address()


def _named_chat(db: SessionDB, config: Config, person: Person, target: str, any_chat: bool) -> Address:
    """A chat by a target: `PLATFORM` (their private chat there) or `PLATFORM:CHAT:THREAD`."""
    platform, _, rest = target.partition(":")
    platform, (chat_id, _, thread) = platform.lower(), rest.partition(":")
    found: Address | None
    if any_chat:
        found = _chat(db, platform, chat_id, thread) if chat_id else _home_chat(db, config, platform)
    elif chat_id:
        found = db.jobs.chat(platform, chat_id, thread_id=thread or None, person_id=person.id)
    else:
        found = db.jobs.private_chat(person.id, platform=platform)
        if found is None and person.id == LOCAL_OWNER:
            found = _home_chat(db, config, platform)
    known = accounts.platform_of(platform) in {*PLATFORMS, *plugins.get_platforms()} and not accounts.fault(platform)
    if found is None or not known:
        raise UsageError(f"no chat of yours with Hermes is {target[:60]!r}", hint="Write to Hermes there once.")
    return replace(found, person_id=person.id)


def _home_chat(db: SessionDB, config: Config, only: str) -> Address | None:
    """The home channel of a platform, or of the first that has one, accounts such as `slack@work` last."""
    blocks = [config.tree.get("platforms"), _section(config.tree.get("gateway")).get("platforms"), config.tree]
    others = {str(name) for block in blocks for name in _section(block) if accounts.is_account(str(name))}
    for platform in [only] if only else [*sorted(PLATFORMS), *sorted(others)]:
        homes = [_section(_section(block).get(platform)).get("home_channel") for block in blocks]
        named = [_section(home).get("chat_id") if isinstance(home, Mapping) else home for home in homes]
        variable = accounts.variable(f"{accounts.platform_of(platform).upper()}_HOME_CHANNEL", platform)
        chat_id = config.environ(variable) or next(filter(None, named), None)
        if chat_id:
            return _chat(db, platform, str(chat_id), "")
    return None


def _section(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _chat(db: SessionDB, platform: str, chat_id: str, thread: str) -> Address:
    """A chat of anybody; one in which nobody wrote yet is taken for a private one."""
    source = {"platform": platform, "chat_id": chat_id, "chat_type": "dm", "user_id": chat_id}
    if thread:
        source["thread_id"] = thread
    return db.jobs.chat(platform, chat_id, thread_id=thread or None) or Address(
        platform=platform, account="", chat_id=chat_id, person_id=None, source=source,
        route=SessionKey(f"agent:main:{platform}:dm:{chat_id}{f':{thread}' if thread else ''}"),
    )  # fmt: skip


# -- for people ------------------------------------------------------------------------------------------------------


def gap(missed: Missed | Mapping[str, Any], zone: str) -> str:
    """`3 runs, Mon 16 Nov 08:00 to Mon 16 Nov 10:00`."""
    if isinstance(missed, Missed):
        missed = asdict(missed)
    count, first, last = missed["count"], missed["first"], missed["last"]
    if count == 1:
        return f"1 run, {schedules.wall_clock(first, zone)}"
    least = "at least " if missed.get("at_least") else ""
    return f"{least}{count:,} runs, {schedules.wall_clock(first, zone)} to {schedules.wall_clock(last, zone)}"


def when(job: Job) -> str:
    """The next run, or why there is none."""
    if job.state == "active" and job.next_at is not None:
        return schedules.wall_clock(job.next_at, job.zone)
    return job.state


def goes_to(job: Job) -> str:
    address = job.address
    return "the ledger" if address["platform"] == LOCAL else f"{address['platform']}:{address['chat_id']}"


def times(job: Job) -> str:
    """`every day at 9 (Europe/Lisbon), next Tue 17 Nov 09:00`; one that runs once is named once."""
    shown = f"{job.schedule} ({job.zone})"
    if job.kind == "once":
        return shown if job.state == "active" else f"{shown}, {job.state}"
    return f"{shown}, {'next ' if job.state == 'active' else ''}{when(job)}"


def line(job: Job) -> str:
    """One job in one line, for a chat or the model."""
    return f"{job.id[:6]} {job.name}: {times(job)}"


def doubt(db: SessionDB, job: Job) -> str:
    """What to say of a chat from which Hermes never got a message; "" of any other."""
    address = job.address
    platform, thread = address["platform"], (address.get("source") or {}).get("thread_id")
    known = platform == LOCAL or db.jobs.chat(platform, address["chat_id"], thread_id=thread)
    if known or db.jobs.has_route(platform, address["route"]):
        return ""
    return f"Nobody has written to Hermes in {goes_to(job)} yet, so it may be the wrong chat."


def outcome_line(row: Occurrence) -> str:
    """One occurrence in one line."""
    zone = row.zone
    at = schedules.wall_clock(float(row.about.get("instant") or row.received_at), zone)
    if row.about.get("missed"):
        return f"{at}  missed: {gap(row.about['missed'], zone)}"
    by = {"hand": ", run by hand", "catchup": ", caught up"}.get(str(row.about.get("by")), "")
    why = row.reason or row.error
    return f"{at}  {row.outcome}{by}{f': {brief(why, 80)}' if why and row.outcome != 'answered' else ''}"
