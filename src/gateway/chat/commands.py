"""Chat commands: messages that begin with a slash, and pressed buttons. None of them reaches the model.

A command is an inbox row like any message. One transaction claims it before it runs, and one ends it together with its
reply, so a command runs at most once and its reply is in the outbox exactly when it has ended. A command that was cut
off in between never runs again: at the next start the chat is told that its outcome is not known.

A command's definition (folder `hermes_agent/commands`) names the roles that may use it; `authorisation` decides with
the role in force now. Hooks of the event `command:<name>` may deny a command, answer it, or replace it by another. This
module defines the commands that only chats have or that chats answer differently; all others are the same everywhere.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.access import authorisation
from gateway.chat.command_context import ChatCommandContext, CommandSender, Reset, sender_of
from gateway.inbound import terminal_messages
from gateway.inbound.lanes import Kind, Lanes
from gateway.inbound.stored_message import age, event_of, is_own, source_of
from gateway.outbound import notices
from gateway.retry import written
from gateway.routes.reset_policy import zone_of
from hermes_agent import jobs, process_identity, schedules
from hermes_agent.commands import about, held_answers, lookup, registry, turns
from hermes_agent.commands.base import STAFF, CommandContext, SlashCommand, Surface
from hermes_agent.text import columns, counted
from hermes_state.ids import ConversationId
from hermes_state.turns.inbox import FOR_QUESTION, InboxRow, Outcome
from hermes_state.turns.jobs import job_of
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem

if TYPE_CHECKING:
    from gateway.chat.approvals import Questions
    from gateway.services import Services
    from gateway.turns.agents import Agents
    from gateway.turns.running_turn import Watcher
    from hermes_state.turns.turns import Turn

_log = logging.getLogger("hermes.gateway")


CHATS: frozenset[Surface] = frozenset({"gateway", "api"})
NOT_WAITING = frozenset(
    {"stop", "approve", "deny", "status", "queue", "steer", "help", "commands", "new", "usage"}
    | {"why", "hold", "held", "processes", "agents"}
)
"""Commands that do not wait behind a running turn: they are about that turn, or only read."""


def _chat(ctx: CommandContext) -> ChatCommandContext:
    assert isinstance(ctx, ChatCommandContext), "these commands are for chats"
    return ctx


async def stop(ctx: CommandContext, args: str) -> str:
    """Stop the running turn and drop waiting messages. In a group only its author or an admin may stop a turn."""
    chat = _chat(ctx)
    chat.check_whose_task_runs()
    dropped = await chat.drop("stopped by the person")
    said = await turns.stop(ctx, args)
    return f"{said}\n{_not_answered(dropped)}" if dropped else said


async def new(ctx: CommandContext, args: str) -> str:
    """Start a new conversation and drop waiting messages, which belong to the old one."""
    chat = _chat(ctx)
    chat.check_whose_task_runs()
    dropped = await chat.drop("/new: a new conversation was begun")
    running = await asyncio.to_thread(lookup.background, ctx)
    said = await chat.begin_anew(args) + lookup.still_running(running)
    return f"{said}\n{_not_answered(dropped)}" if dropped else said


def _not_answered(dropped: int) -> str:
    return f"{counted(dropped, 'waiting message')} will not be answered."


async def status(ctx: CommandContext, args: str) -> str:
    """The running turn and waiting messages; then the conversation, its tokens and cost."""
    chat = _chat(ctx)
    turn, waiting = chat.lanes.running(chat.route), chat.lanes.waiting(chat.route)
    doing = "none running" if turn is None else f"running for {_span(time.monotonic() - turn.since)}"
    rows = [("turn", doing), ("waiting", counted(waiting, "message") if waiting else "nothing")]
    rows += await asyncio.to_thread(about.conversation_facts, ctx)
    session_id = await asyncio.to_thread(lookup.here, ctx)
    return columns(rows if session_id is None else rows + await asyncio.to_thread(about.used, ctx, session_id))


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


async def queue(ctx: CommandContext, args: str) -> str:
    """Queue a message behind the running turn, whatever the busy mode."""
    chat = _chat(ctx)
    if not args:
        return f"{counted(chat.lanes.waiting(chat.route), 'message')} waiting. /queue TEXT adds one."
    if refused := _no_room(chat):
        return refused
    chat.lanes.put(await _as_message(chat, args), wait=True)
    return "Your message is next." if chat.busy else "I am starting with it."


async def steer(ctx: CommandContext, args: str) -> str:
    """Give the running turn a message to use in its next step."""
    chat = _chat(ctx)
    if not args:
        return "/steer TEXT adds a message to the current task."
    if refused := _no_room(chat):
        return refused
    row, turn = await _as_message(chat, args), chat.lanes.running(chat.route)
    if turn is not None and turn.person_id == row.person_id and chat.lanes.steer(row):
        return notices.STEERED
    chat.lanes.put(row, wait=True)
    return "No task of yours is running, so I answer this as a new message."


def _no_room(chat: ChatCommandContext) -> str:
    """Why the text of /queue or /steer is refused: the queue is full, though the command itself was accepted."""
    waiting = chat.lanes.waiting(chat.route)
    return notices.refused_full(waiting) if waiting >= chat.db.limits.queued_messages else ""


async def _as_message(chat: ChatCommandContext, text: str) -> InboxRow:
    """Store the command's text as a message; a second call finds the same row."""
    row = chat.row
    payload = {**(row.payload or {}), "text": text, "type": "text"}
    accepted = await chat.db.inbox.aaccept(
        platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=terminal_messages.brought(row),
        version=row.version, route=chat.route, payload=payload, person_id=row.person_id, trace_id=row.trace_id,
    )  # fmt: skip
    return accepted.row


async def catchup(ctx: CommandContext, args: str) -> str:
    """Answer messages that came while the gateway was down, continue interrupted turns and run missed jobs; `list` only
    lists them."""
    chat = _chat(ctx)
    left, rows = await chat.lanes.missed(chat.route)
    runs = await asyncio.to_thread(jobs.catch_up, chat.db, chat.route)
    if not left and not rows and not runs:
        return "There is nothing to catch up on."
    now = chat.db.clock()
    lines = [f"interrupted {notices.span(now - turn.updated_at)} ago: {_asked(chat, turn)}" for turn in left]
    lines += [f"not answered, {notices.span(age(row, now=now))} old: {_beginning(row)}" for row in rows]
    lines += [f"missed: {job.name}, {schedules.wall_clock(at, job.zone)}" for job, found in runs for at in found]
    if args.strip().lower() == "list":
        return "\n".join([*lines, "/catchup answers all of these, the oldest first."])
    await chat.lanes.catch_up(chat.route)
    for job, found in runs:
        await asyncio.to_thread(jobs.run_missed, chat.db, job, found)
    return "\n".join(["I am now working on:", *lines])


def _asked(chat: ChatCommandContext, turn: Turn) -> str:
    rows = chat.db.inbox.of_turn(turn.id)
    return _beginning(rows[-1]) if rows else "a turn that a command asked for"


def _beginning(row: InboxRow) -> str:
    text = " ".join(str((row.payload or {}).get("text") or "").split()) or "(a file)"
    return f"“{text[:60]}…”" if len(text) > 60 else f"“{text}”"


async def resend(ctx: CommandContext, args: str) -> str:
    """Send an answer again that may not have arrived in this chat."""
    chat, number = _chat(ctx), args.strip()
    item = await asyncio.to_thread(chat.db.outbox.get, int(number)) if number.isdecimal() and len(number) < 19 else None
    row = chat.row
    here = item is not None and (item.platform, item.account, item.chat_id) == (row.platform, row.account, row.chat_id)
    if item is None or not here:
        return "There is no such answer here. Use the number from my message about it: /resend NUMBER."
    if item.state not in ("failed", "unknown") or not await asyncio.to_thread(chat.db.outbox.retry, item.id):
        return {"sent": "It has been sent.", "dropped": "It was dropped."}.get(item.state, "It is already being sent.")
    return "I am sending it again."


async def held(ctx: CommandContext, args: str) -> str:
    """Decide about a held answer; the card's buttons are these commands."""
    chat, (choice, number, text) = _chat(ctx), (*args.split(maxsplit=2), "", "", "")[:3]
    if choice not in held_answers.CHOICES or not number:
        return held_answers.USAGE
    return await chat.cards.decide(chat.sender, number, choice, text=text)


async def why(ctx: CommandContext, args: str) -> str:
    """How an answer came about: the one that the person replied to, the named one, or the last one here."""
    return await asyncio.to_thread(_why, _chat(ctx), args.strip(), await _chat(ctx).policy())


def _why(chat: ChatCommandContext, wanted: str, policy: authorisation.Policy) -> str:
    from hermes_agent.receipts import receipt  # needed here only

    db, row = chat.db, chat.row
    root = None if chat.session_id is None else ConversationId(db.get_conversation_root(chat.session_id))
    replied = str(((row.payload or {}).get("reply_to") or {}).get("id") or "")
    if wanted:
        turn = receipt.find_or_none(db, wanted.split(maxsplit=1)[0])
    elif replied:
        item = db.outbox.shown_as(row.platform, row.account, row.chat_id, replied, first=root)
        asked = db.inbox.versions(
            platform=row.platform, account=row.account, chat_id=row.chat_id, message_id=replied
        ) if item is None else ()  # fmt: skip
        if item is not None and (said := _of_job(chat, item)):
            return said
        turn_id = item.turn_id if item is not None else asked[-1].turn_id if asked else None
        turn = None if turn_id is None else db.turns.get(turn_id)
    else:
        turn = None if root is None else receipt.last_turn(db, root)
        if turn is None:
            return "There is no answer in this conversation yet."
    if turn is None or not _may_read(chat, turn, policy):
        return "I have no record of how that came about: it is not an answer of mine here, or it is too old."
    return receipt.short_text(receipt.receipt_of(db, turn), staff=chat.person.role in STAFF and chat.private)


def _of_job(chat: ChatCommandContext, item: OutboxItem) -> str:
    """What sent a message for which no model was asked, to the person whose job it was; else empty."""
    job_id = job_of(item.dedup_key) if item.turn_id is None else ""
    job = chat.db.jobs.get(job_id) if job_id else None
    if job is None or job.person_id != chat.person.id:
        return ""
    what = "is a reminder" if job.task.get("text") else f"came from the script of “{job.name}”"
    return f"This {what} ({job.schedule}). No model was asked. /cron show {job.id[:6]} shows its runs."


def _may_read(chat: ChatCommandContext, turn: Turn, policy: authorisation.Policy) -> bool:
    address, owner = chat.db.inbox.address(turn.id), chat.db.ledger.owner(turn.conversation_id)
    key = None if address is None else (address.platform, address.account, address.chat_id)
    resource = authorisation.ReadableConversation(owner, key)
    return authorisation.decide(chat.sender.principal, chat.sender.surface, "read", resource, policy).allowed


async def approve(ctx: CommandContext, args: str) -> str:
    """Give permission: `/approve`, `/approve ID task`, `/approve ID 3 times`, `/approve ID until 18:00`."""
    chat = _chat(ctx)
    named = next((word for word in args.split() if word.startswith("ask_")), "")
    wish = " ".join(word for word in args.split() if word != named).lower()
    answer = _yes(wish, chat)
    if answer is None:
        return "/approve [ID] [task|once|conversation|always|N times|until HH:MM]"
    if answer["choice"] == "always" and not named:
        return "To allow this always, name the question: /approve ID always"
    if not named:
        meant = await chat.approver.meant_by(chat.sender, chat.row)
        if not meant.question_id:
            return f"Nothing was decided: {meant.why_not}."
        named = meant.question_id
    return await chat.approver.decide(chat.sender, named, **answer)


def _yes(wish: str, chat: ChatCommandContext) -> dict[str, Any] | None:
    """The arguments of /approve as arguments of `decide`; None when they mean nothing."""
    if wish in _ALLOWING:
        return {"choice": _ALLOWING[wish]}
    if times := re.fullmatch(r"([1-9]\d{0,2}) times?|([1-9]\d{0,2})x?", wish):
        uses = int(times[1] or times[2])
        return {"choice": "session", "uses": uses, "reason": counted(uses, "time")}
    if clock := re.fullmatch(r"until ([01]?\d|2[0-3])[:.]([0-5]\d)", wish):
        now = datetime.fromtimestamp(chat.db.clock(), tz=zone_of(chat.person.zone))
        end = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        end = end if end > now else end + timedelta(days=1)
        return {"choice": "session", "until": end.timestamp(), "reason": f"until {end:%H:%M}"}
    return None


async def deny(ctx: CommandContext, args: str) -> str:
    """Deny a question, perhaps with a reason. Unlike /approve it need not prove that the person read the question."""
    chat = _chat(ctx)
    first, _, rest = args.partition(" ")
    if first.startswith("ask_"):
        return await chat.approver.decide(chat.sender, first, "deny", reason=rest)
    meant = await chat.approver.meant_by(chat.sender, chat.row)
    waiting = await chat.approver.open_for(chat.sender)
    number = meant.question_id or (waiting[0].id if len(waiting) == 1 else "")
    if not number:
        return f"Nothing was decided: {meant.why_not}."
    return await chat.approver.decide(chat.sender, number, "deny", reason=args)


async def start(ctx: CommandContext, args: str) -> str:
    """Greet a person. Some platforms send /start when somebody first opens the chat."""
    name = " ".join((ctx.person.display_name or "").split())[:40]
    return f"Hello{f', {name}' if name else ''}. Write to me as you would to a person. /help lists my commands."


async def every(ctx: CommandContext, args: str) -> str:
    return registry.help_text(ctx.surface, role=ctx.person.role)


_ALLOWING = {
    "": "once", "once": "once", "task": "task", "session": "session", "conversation": "session", "always": "always",
}  # fmt: skip

_row = partial(SlashCommand, surfaces=CHATS)
ROWS = (
    _row(name="new", category="Conversation", handler=new, aliases=("reset",), args_hint="[title]",
         description="start a new conversation"),
    _row(name="stop", category="Turns", handler=stop, args_hint="[all]",
         description="stop the current task; all: background processes too"),
    _row(name="status", category="About", handler=status, description="where this conversation stands",
         shows=True),
    _row(name="queue", category="Turns", handler=queue, aliases=("q",), args_hint="TEXT",
         description="add a message that waits until I am done"),
    _row(name="steer", category="Turns", handler=steer, args_hint="TEXT",
         description="add a message to the current task"),
    _row(name="catchup", category="Turns", handler=catchup, args_hint="[list]",
         description="answer messages that came while I was offline, continue interrupted tasks, run missed jobs"),
    _row(name="resend", category="Turns", handler=resend, args_hint="NUMBER",
         description="send an answer again that may not have arrived"),
    _row(name="why", category="Turns", handler=why, shows=True,
         description="how an answer came about: reply to it with /why, or /why for the last one"),
    _row(name="held", category="Turns", handler=held, private=True, args_hint="send|edit|drop NUMBER",
         description="send, change or drop an answer that is held"),
    _row(name="approve", category="Turns", handler=approve, private=True, description="allow what I asked about",
         args_hint="[id] [task|once|conversation|always|N times|until HH:MM]"),
    _row(name="deny", category="Turns", handler=deny, private=True, args_hint="[id] [why]",
         description="forbid what I asked about"),
    _row(name="start", category="About", handler=start, description="say hello", shows=True),
    _row(name="commands", category="About", handler=every, description="all commands", shows=True),
)  # fmt: skip

registry.add(*ROWS)


class _End(NamedTuple):
    """How a command ended."""

    said: str = ""
    outcome: Outcome = "answered"
    reason: str = ""
    personal: bool = False
    """What is said concerns the sender alone: where a platform can, nobody else in the group sees it."""


class ChatCommands:
    """Answers inbox rows that are not for the model: commands, buttons and answers to questions."""

    def __init__(self, services: Services, *, reset: Reset, questions: Questions) -> None:
        self.services, self.reset, self.questions = services, reset, questions

    def serve(self, lanes: Lanes, agents: Agents) -> None:
        """Set the lanes and agents that commands act on; called once, before anything runs."""
        self.lanes, self.agents = lanes, agents

    def question_answered(self, question_id: str) -> None:
        """Show on its card how a waiting turn's question was answered, perhaps in another process."""
        self.questions.approver.closed(question_id)

    def question_closed(self, question_id: str, reason: str) -> None:
        """Show on its card that a waiting turn's question is no longer needed."""
        self.questions.approver.closed(question_id, f"no longer needed: {reason}")

    # -- the kind of a row ---------------------------------------------------------------------------------

    def kind(self, row: InboxRow) -> Kind:
        if is_own(row):
            return "turn"
        if "answer" in (row.payload or {}):
            return "now"
        typed = _typed(row)
        if typed is None:
            return "now" if self.questions.expect(row) else "turn"
        command = registry.find("gateway", typed.name)
        # An unknown command is answered at once; a typing error says nothing about the running turn.
        return "now" if command is None or command.name in NOT_WAITING else "command"

    # -- one command ---------------------------------------------------------------------------------------

    async def run(self, row: InboxRow, watcher: Watcher | None) -> None:
        """Claim the row, run the command, end the row with its reply."""
        if self.kind(row) == "turn":  # an answer to a question that closed before the answer came
            self.lanes.put(row, watcher=watcher, again=True)
            return
        plain_text = _typed(row) is None and "answer" not in (row.payload or {})
        clarified = plain_text and self.questions.clarifier.take(row)
        edited = await self.questions.cards.edited(row) if plain_text and not clarified else None
        if plain_text and not clarified and edited is None and not await self.questions.approver.is_answer(row):
            self.lanes.put(row, watcher=watcher, again=True)
            return
        db = self.services.db
        holder, what = process_identity.new_holder(), "the start of a command"
        take = partial(db.inbox.take_command_in, row_id=row.id, holder=holder)
        if not await written(db, take, what=what, trace_id=row.trace_id):
            return  # it ran already
        try:
            end = _End(reason="it answered a question") if clarified else await self._answered(row, watcher, edited)
        except Exception as error:  # noqa: BLE001 - the named boundary of a command: it costs that command alone
            kind, extra = type(error).__name__, {"action": "command_defect", "trace_id": row.trace_id}
            _log.error("a command failed because of a defect in Hermes", exc_info=error, extra=extra)
            end = _End(f"Something went wrong inside Hermes ({kind}).", "error", kind, personal=True)
        await self._end(row, end, watcher)

    async def _end(self, row: InboxRow, end: _End, watcher: Watcher | None) -> None:
        inbox, reply = self.services.db.inbox, self._reply(row, end) if end.said else None
        ended = partial(inbox.end_command_in, row_id=row.id, outcome=end.outcome, reason=end.reason, reply=reply)
        item = await written(self.services.db, ended, what="the end of a command", trace_id=row.trace_id)
        if item is not None:
            self.lanes.hand_over(item)
        if _typed(row) is not None:
            self.services.metrics.commands(end.outcome).inc()
        if watcher is not None and end.said:
            watcher.ended(_result(end.said, item, failed=end.outcome == "error"))

    def _reply(self, row: InboxRow, end: _End) -> NewOutboxItem:
        source = source_of(row)
        alone = source.chat_type == "dm"
        asked, only_for = None if alone else row.message_id, source.user_id if end.personal and not alone else None
        return NewOutboxItem(
            dedup_key=notices.reply_key(row.id), platform=row.platform, account=row.account, chat_id=row.chat_id,
            payload=notices.payload(
                end.said, "command", thread_id=source.thread_id, reply_to=asked, only_for=only_for
            ),
            trace_id=row.trace_id, sender=self.services.holder,
        )  # fmt: skip

    async def _answered(self, row: InboxRow, watcher: Watcher | None, edited: int | None = None) -> _End:
        sender = await sender_of(self.services, row)
        if sender is None:
            return _End(outcome="dropped", reason="its sender may not give commands here")
        if edited is not None:
            text = str((row.payload or {}).get("text") or "")
            return _End(await self.questions.cards.decide(sender, str(edited), "edit", text=text), reason=FOR_QUESTION)
        answer = event_of(row).answer
        if answer is None and _typed(row) is None:
            return _End(await self.questions.approver.plain(sender, row), reason=FOR_QUESTION)
        if answer is not None and answer.kind == "approval":
            return _End(await self.questions.approver.decide(sender, answer.id, answer.choice))
        if answer is not None and answer.kind == "clarify":
            return _End(self.questions.clarifier.press(sender, row, answer.id, answer.choice))
        chat = await ChatCommandContext.open(self, row, sender, watcher)
        typed = str((row.payload or {}).get("text") or "") if answer is None else answer.choice
        text = await self._hooked(chat, typed, sender)
        if refused := await self._refused(chat, text):
            await chat.reply(refused, personal=True)
        elif text:
            await registry.run(chat, text)
        return _End("\n\n".join(chat.said), personal=chat.personal)

    async def _refused(self, chat: ChatCommandContext, text: str) -> str:
        """Why authorisation refuses the command, in the command's own words if it has some; empty when allowed."""
        typed = registry.parse(text)
        command = None if typed is None else registry.find(chat.surface, typed.name)
        if typed is None or command is None:
            return ""
        resource = authorisation.Usable(command.name, command.roles, private=command.private)
        policy, who, where = await self.services.policy.fresh(), chat.sender.principal, chat.sender.surface
        decision = authorisation.decide(who, where, "command", resource, policy)
        if decision.allowed:
            return ""
        return registry.refusal(command, chat, typed.args) or f"/{command.name}: {decision.reason}."

    async def _hooked(self, chat: ChatCommandContext, text: str, sender: CommandSender) -> str:
        """The command after its hooks; empty when a hook denied or handled it, and perhaps replied."""
        typed = registry.parse(text)
        command = None if typed is None else registry.find(chat.surface, typed.name)
        if typed is None or command is None or not self.services.hooks.listens(f"command:{command.name}"):
            return text
        facts = {
            "platform": chat.platform, "user_id": sender.principal.native_id, "command": command.name,
            "raw_command": typed.name, "args": typed.args, "raw_args": typed.args,
        }  # fmt: skip
        for answer in await self.services.hooks.emit_collect(f"command:{command.name}", facts):
            decision = answer.get("decision") if isinstance(answer, dict) else None
            said = str(answer.get("message") or "") if decision else ""
            if decision == "deny":
                await chat.reply(said or f"/{command.name} was refused by a rule of this chat.", personal=True)
                return ""
            if decision == "handled":
                if said:
                    await chat.reply(said)
                return ""
            if decision == "rewrite":
                name = str(answer.get("command_name") or command.name).removeprefix("/")
                return f"/{name} {answer.get('raw_args', typed.args)}".rstrip()
        return text


def _typed(row: InboxRow) -> registry.Invocation | None:
    """The slash command in a message; None when the message is not one."""
    text = str((row.payload or {}).get("text") or "").lstrip()
    return registry.parse(text) if text.startswith("/") else None


def _result(said: str, item: OutboxItem | None, *, failed: bool) -> dict[str, Any]:
    """The result for watchers: a command ends as a turn does."""
    return {
        "final_response": said, "completed": not failed, "failed": failed, "interrupted": False, "partial": False,
        "error": said if failed else None, "api_calls": 0, "outbox_item": item,
    }  # fmt: skip
