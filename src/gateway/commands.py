"""Commands in chats: what begins with a slash, and pressed buttons. None of it reaches the model.

A command is an inbox row like any message. It is taken before it runs and ended together with its reply, in one
transaction each, so it runs at most once and its reply is owed exactly when it has ended. One that was cut off in
between is never run again: the next start says that its outcome is not known.

Who may do what stands on the rows of `hermes_agent.commands`; `authorisation` decides, for the role in force at this
moment. Hooks of the event `command:<name>` may deny a command, answer it themselves, or turn it into another.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway import authorisation, chat_rows, notices
from gateway.desk import ChatDesk, Reset, Sender, Switch, sender_of
from gateway.insisting import written
from gateway.intake import event_of, source_of
from gateway.lane import Kind
from hermes_agent import commands
from hermes_state.turns.inbox import Outcome
from hermes_state.turns.outbox import OutboxItem, Parcel

if TYPE_CHECKING:
    from gateway.agents import Agents
    from gateway.board import Board
    from gateway.lanes import Lanes
    from gateway.questions import Questions
    from gateway.watching import Watcher
    from hermes_state.turns.inbox import InboxRow

_log = logging.getLogger("hermes.gateway")


class _End(NamedTuple):
    """How a command ended."""

    said: str = ""
    outcome: Outcome = "answered"
    reason: str = ""


class ChatCommands:
    """Who answers what is not for the model."""

    def __init__(self, board: Board, *, reset: Reset, questions: Questions) -> None:
        self._board, self._reset, self._questions = board, reset, questions

    def serve(self, lanes: Lanes, agents: Agents) -> None:
        self._lanes = lanes
        self._switch = Switch(
            board=self._board, lanes=lanes, agents=agents, reset=self._reset, questions=self._questions
        )

    # -- what a row is -------------------------------------------------------------------------------------

    def kind(self, row: InboxRow) -> Kind:
        if "answer" in (row.payload or {}):
            return "now"
        typed = _typed(row)
        if typed is None:
            return "now" if self._questions.expect(row) else "turn"
        command = commands.find("gateway", typed.name)
        # What nobody knows is answered at once; a typing error says nothing about the running turn.
        return "now" if command is None or command.name in chat_rows.NOT_WAITING else "command"

    # -- one command ---------------------------------------------------------------------------------------

    async def run(self, row: InboxRow, watcher: Watcher | None) -> None:
        if self.kind(row) == "turn":  # words for a question that was over before they came to it
            self._lanes.put(row, watcher=watcher)
            return
        words = _typed(row) is None and "answer" not in (row.payload or {})
        spoken = words and self._questions.clarifier.take(row)
        if words and not spoken and not await self._questions.approver.is_answer(row):
            self._lanes.put(row, watcher=watcher)
            return
        db = self._board.db
        take, what = partial(db.inbox.take_command_in, row_id=row.id), "that a command begins"
        if not await written(db, take, what=what, trace_id=row.trace_id):
            return  # it ran already
        try:
            end = _End(reason="it answered a question") if spoken else await self._answered(row, watcher)
        except Exception as error:  # noqa: BLE001 - the named boundary of a command: it costs that command alone
            kind, extra = type(error).__name__, {"action": "command_defect", "trace_id": row.trace_id}
            _log.error("a command failed in our own code", exc_info=error, extra=extra)
            end = _End(f"Something went wrong inside Hermes ({kind}).", "error", kind)
        await self._end(row, end, watcher)

    async def _end(self, row: InboxRow, end: _End, watcher: Watcher | None) -> None:
        inbox, reply = self._board.db.inbox, self._reply(row, end.said) if end.said else None
        ended = partial(inbox.end_command_in, row_id=row.id, outcome=end.outcome, reason=end.reason, reply=reply)
        item = await written(self._board.db, ended, what="the end of a command", trace_id=row.trace_id)
        if item is not None:
            self._lanes.hand_over(item)
        if _typed(row) is not None:
            self._board.metrics.commands(end.outcome).inc()
        if watcher is not None and end.said:
            watcher.ended(_result(end.said, item, failed=end.outcome == "error"))

    def _reply(self, row: InboxRow, text: str) -> Parcel:
        source = source_of(row)
        payload: dict[str, Any] = {"text": text, "kind": "command"}
        if source.thread_id:
            payload["thread_id"] = source.thread_id
        if source.chat_type != "dm":
            payload["reply_to"] = row.message_id
        return Parcel(
            dedup_key=notices.reply_key(row.id), platform=row.platform, account=row.account, chat_id=row.chat_id,
            payload=payload, trace_id=row.trace_id, sender=self._board.holder,
        )  # fmt: skip

    async def _answered(self, row: InboxRow, watcher: Watcher | None) -> _End:
        sender = await sender_of(self._board, row)
        if sender is None:
            return _End(outcome="dropped", reason="nobody who gives commands here")
        answer = event_of(row).answer
        if answer is None and _typed(row) is None:
            return _End(await self._questions.approver.plain(sender, row))
        if answer is not None and answer.kind == "approval":
            return _End(await self._questions.approver.decide(sender, answer.id, answer.choice))
        if answer is not None and answer.kind == "clarify":
            return _End(self._questions.clarifier.press(sender, row, answer.id, answer.choice))
        desk = await ChatDesk.open(self._switch, row, sender, watcher)
        typed = str((row.payload or {}).get("text") or "") if answer is None else answer.choice
        text, said = await self._hooked(desk, typed, sender)
        refused = await self._refused(desk, text)
        if refused:
            said.append(refused)
        elif text:
            await commands.run(desk, text)
        return _End("\n\n".join([*said, *desk.said]))

    async def _refused(self, desk: ChatDesk, text: str) -> str:
        """What authorisation has against it, in the words of the command's row where it has some."""
        typed = commands.parse(text)
        command = None if typed is None else commands.find(desk.surface, typed.name)
        if typed is None or command is None:
            return ""
        resource = authorisation.Usable(command.name, command.roles, private=command.private)
        policy, who, where = await self._board.policy.fresh(), desk.sender.principal, desk.sender.place
        decision = authorisation.decide(who, where, "command", resource, policy)
        if decision.allowed:
            return ""
        return commands.refusal(command, desk, typed.args) or f"/{command.name}: {decision.reason}."

    async def _hooked(self, desk: ChatDesk, text: str, sender: Sender) -> tuple[str, list[str]]:
        """The command as hooks leave it, empty when one has dealt with it; and what they have to say."""
        typed = commands.parse(text)
        command = None if typed is None else commands.find(desk.surface, typed.name)
        if typed is None or command is None or not self._board.hooks.listens(f"command:{command.name}"):
            return text, []
        facts = {
            "platform": desk.platform, "user_id": sender.principal.native_id, "command": command.name,
            "raw_command": typed.name, "args": typed.args, "raw_args": typed.args,
        }  # fmt: skip
        for answer in await self._board.hooks.emit_collect(f"command:{command.name}", facts):
            decision = answer.get("decision") if isinstance(answer, dict) else None
            said = str(answer.get("message") or "") if decision else ""
            if decision == "deny":
                return "", [said or f"/{command.name} was refused by a rule of this place."]
            if decision == "handled":
                return "", [said] if said else []
            if decision == "rewrite":
                name = str(answer.get("command_name") or command.name).removeprefix("/")
                return f"/{name} {answer.get('raw_args', typed.args)}".rstrip(), []
        return text, []


def _typed(row: InboxRow) -> commands.Invocation | None:
    """The command that a message is; None for what is for the model."""
    text = str((row.payload or {}).get("text") or "").lstrip()
    return commands.parse(text) if text.startswith("/") else None


def _result(said: str, item: OutboxItem | None, *, failed: bool) -> dict[str, Any]:
    """For whoever looks on: a command ends as a turn does."""
    return {
        "final_response": said, "completed": not failed, "failed": failed, "interrupted": False, "partial": False,
        "error": said if failed else None, "api_calls": 0, "outbox_item": item,
    }  # fmt: skip
