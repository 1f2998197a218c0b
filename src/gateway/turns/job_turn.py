"""The turn of a job's occurrence: its script, its conversation, the model's input, and the message to its chat.

Each occurrence has a conversation of its own, `cron_JOB_TIME`, to which no route leads. `prepare` ends an occurrence
that needs no turn: the job was paused or removed, it was found too late, its person lost access, or its script failed,
printed nothing, or is the whole job. Of several gateways one runs the script; a crash before the turn begins
repeats it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from gateway import scheduler
from gateway.outbound import notices
from gateway.periodic_tasks import NO_ACCESS
from hermes_agent import jobs, process_identity, schedules
from hermes_agent.execution import script
from hermes_agent.text import shortened
from hermes_agent.tools import environment
from hermes_config.errors import HermesError
from hermes_state.conversations import origins
from hermes_state.conversations.ledger import Handle, Resolved
from hermes_state.errors import IdTaken
from hermes_state.ids import ConversationId, SessionId
from hermes_state.storage.writer import look
from hermes_state.turns.jobs import CUT_OFF, SCRIPT, is_lane
from hermes_state.turns.outbox import NewOutboxItem

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy
    from gateway.services import Services
    from gateway.turns.running_turn import RunningTurn
    from hermes_state import SessionDB
    from hermes_state.ids import SessionKey
    from hermes_state.turns.inbox import InboxRow, Outcome
    from hermes_state.turns.jobs import Job

_LOOK_SECONDS = 0.5
_TURN_BEGINS_SECONDS = 60.0
"""The longest time from the end of a script to the beginning of its turn."""
_LOOKED_AT = 500
_LEFT_CHARS = 3_000
_SINCE_SECONDS, _WROTE, _WROTE_CHARS = 86_400.0, 5, 1_500
"""What a chat's next turn reads of its jobs: the last day, so many messages, so much of each."""


class JobEnded(Exception):
    """The occurrence, or a later result, has its outcome, and needs no turn."""


def is_job(running: RunningTurn) -> bool:
    """Whether the turn is that of an occurrence."""
    return running.own.get("kind") == "job"


def is_of_job(running: RunningTurn) -> bool:
    """Whether the turn is that of an occurrence, or about something that one has started."""
    return is_lane(running.route)


async def prepare(services: Services, running: RunningTurn) -> str:
    """The lines for the model before the job's prompt. Raises `JobEnded`."""
    db, own, row = services.db, running.own, running.rows[-1]
    job = await look(db, db.jobs.get, own["job"])
    if job is None or (job.state == "paused" and own["by"] == "schedule"):
        await _end(db, row, "silent", f"the job was {'removed' if job is None else 'paused'} before it ran")
    if scheduler.is_shut_out(job, await services.policy.fresh()):
        await _end(db, row, "error", NO_ACCESS)
    if db.clock() > own["late_after"]:
        await asyncio.to_thread(_end_late, db, job, row)
        raise JobEnded
    if text := job.task.get("text"):  # a reminder that somebody asked for
        await _end(db, row, "answered", "", await _message(services, job, _key(row), text))
    said = [_about(job, own)]
    if script_text := own.get("script"):
        person = await look(db, db.people.get, job.person_id)
        if person is None or person.role not in jobs.STAFF:
            await _end(db, row, "error", "its person may no longer run scripts")
        said.append(await _scripted(services, job, row, script_text))
    if skills := own.get("skills"):
        said.append(f"[Load these skills first: {', '.join(skills)}.]")
    return "\n".join(said)


def _about(job: Job, own: Any) -> str:
    due = schedules.wall_clock(own["instant"], job.zone)
    return (
        f"[This is your scheduled job “{job.name}”, due {due} ({job.zone}). Your answer is sent to the person's chat; "
        "nobody can answer a question now. If there is nothing to tell, answer exactly [SILENT], and nothing is sent.]"
    )


async def _scripted(services: Services, job: Job, row: InboxRow, script_text: str) -> str:
    """The output of the job's script, for the model. Without a prompt, the output is the message."""
    db, key = services.db, _key(row)
    seconds = services.config.terminal.timeout or db.limits.terminal_seconds
    await _take_script(services, row, seconds)
    try:
        out = await _run(services, script_text, seconds)
    except HermesError as error:
        said = f"The script of “{job.name}” failed: {error.in_chat()}"
        told = await _message(services, job, f"{key}:failed", said)
        await _end(db, row, "error", f"its script failed: {error.what}", told)
    if not out.strip():
        await _end(db, row, "silent", "its script printed nothing")
    if not (row.payload or {}).get("text"):
        await _end(db, row, "answered", "", await _message(services, job, key, out.strip()))
    return f"{origins.SCRIPT}\n{out.strip()}\n[End of its output.]"


def _key(row: InboxRow) -> str:
    return row.message_id.split(":", 3)[3]


async def _message(services: Services, job: Job, key: str, text: str) -> NewOutboxItem | None:
    held = await asyncio.to_thread(scheduler.is_held, services, job)
    return jobs.message(job, key, text, held=held)


async def _take_script(services: Services, row: InboxRow, seconds: float) -> None:
    """Reserve the script of an occurrence for this process, until its row is claimed or ended. Raises `JobEnded` if
    another process has done that. A process that died frees it."""
    db, name = services.db, ConversationId(f"{SCRIPT}{row.id}")

    def taken() -> bool:
        if db.leases.acquire(name, holder=services.holder, ttl=seconds + _TURN_BEGINS_SECONDS) is not None:
            return True
        held = db.leases.get(name)
        if held is not None and held.holder == services.holder:
            return True  # the lane tries the row again
        process_identity.release_gone(db, name)
        now = db.inbox.get(row.id)
        if now is None or now.state != "queued":
            raise JobEnded
        return False

    while not await asyncio.to_thread(taken):  # noqa: ASYNC110 - another process frees it
        await asyncio.sleep(_LOOK_SECONDS)


async def _run(services: Services, script_text: str, seconds: float) -> str:
    config = services.config
    where = await asyncio.to_thread(environment.working_directory, config.home, started_in=None)
    return await script.run(config, script_text, where, seconds=seconds)


async def _end(
    db: SessionDB, row: InboxRow, outcome: Outcome, reason: str, reply: NewOutboxItem | None = None
) -> NoReturn:
    await asyncio.to_thread(_end_now, db, row, outcome, reason, reply)
    raise JobEnded


def _end_now(
    db: SessionDB, row: InboxRow, outcome: Outcome, reason: str, reply: NewOutboxItem | None = None
) -> NoReturn:
    db.jobs.end([row.id], outcome, reason=reason, reply=reply)
    raise JobEnded


def _end_late(db: SessionDB, job: Job, row: InboxRow) -> None:
    """End every waiting occurrence that is too late by now, with one notice that says why and how many."""
    now, known = db.clock(), db.jobs.ledger(job.id, limit=_LOOKED_AT)
    late = [one for one in known if one.state == "queued" and now > one.about["late_after"]][::-1]
    if not late:
        return  # another process ended them
    first = late[0].about["instant"]
    before = [one for one in known if one.id < row.id and one.state in ("answered", "silent", "error")]
    waited = any((one.ended_at or 0) > first and one.reason != CUT_OFF for one in before)
    about = {"missed": {"count": len(late), "first": first, "last": late[-1].about["instant"]}}
    told = scheduler.found_late(job, about, waited=waited, later=known[0].id > late[-1].id)
    why = "the run before it took too long" if waited else "found too late"
    db.jobs.end([one.id for one in late], "missed", reason=why, reply=told)


async def conversation(services: Services, running: RunningTurn) -> Resolved:
    """The conversation of this occurrence; a new one unless a process that died has made it."""
    return await asyncio.to_thread(_conversation, services.db, running)


def _conversation(db: SessionDB, running: RunningTurn) -> Resolved:
    own = running.own
    at = datetime.fromtimestamp(own["instant"], UTC)
    name = f"cron_{own['job']}_{at:%Y%m%d_%H%M%S}" + ("" if own["by"] == "schedule" else f"_{own['by']}")
    handle = Handle(ConversationId(name), SessionId(name))
    try:
        title = db.sanitize_title(f"{own['name'][:60]} {at:%Y-%m-%d %H:%M} {own['job'][:4]}")
        return Resolved(
            db.ledger.open(
                source="cron", owner=running.person_id, session_id=name, fields={"title": title, "user_id": None}
            ),
            created=True,
        )
    except IdTaken:
        return Resolved(handle)


async def asked_in(services: Services, running: RunningTurn) -> Resolved:
    """The conversation that started what an own row reports. Raises `JobEnded` if its chat has left it: it is told."""
    return await asyncio.to_thread(_asked_in, services, running, await services.policy.fresh())


def _asked_in(services: Services, running: RunningTurn, policy: Policy) -> Resolved:
    db, wanted = services.db, ConversationId(running.own["conversation_id"])
    session = db.get_compression_tip(wanted)
    if not is_of_job(running):
        now = services.store.peek_session_id(running.route)
        if now is None or db.get_conversation_root(now) != wanted:
            _tell_left(services, running, db.get_session_title(session) or wanted)
    elif (job := db.jobs.get(running.own["job"])) is None or db.live_state(session) is None:
        _end_now(db, running.rows[-1], "silent", "its job or its conversation was removed")
    elif scheduler.is_shut_out(job, policy):
        _end_now(db, running.rows[-1], "error", NO_ACCESS)
    return Resolved(Handle(wanted, SessionId(session)))


def _tell_left(services: Services, running: RunningTurn, title: str) -> NoReturn:
    """Tell a chat what a conversation that it has left got; that conversation has no turn about it."""
    db, row, source = services.db, running.rows[-1], running.source
    platform, chat_id = source.platform.value, str(source.chat_id)
    text = shortened(str((row.payload or {}).get("text") or ""), _LEFT_CHARS)
    told = NewOutboxItem(
        dedup_key=f"left:inbox:{row.id}", platform=platform, account=row.account, chat_id=chat_id,
        payload=notices.payload(f"For the conversation “{title}”, which this chat has left:\n\n{text}", "notice",
                                thread_id=source.thread_id),
        trace_id=row.trace_id, held=db.held_answers.is_held(services.settings.delivery.hold, platform, chat_id),
    )  # fmt: skip
    _end_now(db, row, "answered", "its chat has left the conversation; the chat was told", told)


async def wrote_here(db: SessionDB, route: SessionKey, conversation_id: ConversationId) -> str:
    """The note to the model in a chat: what its jobs wrote there since the last turn; empty without any."""
    found = await asyncio.to_thread(db.jobs.wrote, route, conversation_id, longest=_SINCE_SECONDS, limit=_WROTE)
    if not found:
        return ""
    lines = [f"{name}, {schedules.written(at)}: {shortened(text, _WROTE_CHARS)}" for name, at, text in found]
    return "\n".join(["[Since your last turn here, scheduled jobs sent this to the chat:", *lines, "End of that.]"])
