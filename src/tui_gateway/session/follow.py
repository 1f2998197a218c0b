"""Follow a conversation that another process drives: read the store and send events of the protocol.

The event log says which turns began, were recovered and ended; the rows hold messages and tool calls; the gateway
publishes an answer while it is made, because somebody watches (`db.live_views`). Partial text is an event and never a
message. Turns of this process are left out: their agent reports them. The only write is that we watch.

One thread follows all live sessions, a few times a second, with two indexed reads for an idle conversation.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.chat import clarify
from gateway.inbound import terminal_messages
from hermes_agent import process_identity
from hermes_agent.messages import calls_of, text_of
from hermes_agent.tools import output
from hermes_config.errors import HermesError
from hermes_state.conversations import uncompress
from hermes_state.turns.children import BEGUN, ENDED
from hermes_state.turns.events import START
from hermes_state.turns.inbox import LOCAL, QUEUED
from hermes_state.turns.live_views import WATCH_AGAIN_SECONDS
from tui_gateway.session import attach, prompt, session_view
from tui_gateway.session.live_session import child_facts
from tui_gateway.wire.frames import RpcError

if TYPE_CHECKING:
    from hermes_state.turns.events import Event
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.live_views import LiveText
    from hermes_state.turns.outbox import OutboxItem
    from hermes_state.turns.turns import Turn
    from tui_gateway.session.live_session import LiveSession
    from tui_gateway.session.services import RpcServices, Session

_log = logging.getLogger("hermes.rpc")
_Thread = threading.Thread  # as in `transports`
_SECONDS = 0.12
_LISTED = 50
_TITLE_SECONDS = 30.0
_DRIVER_SECONDS, _SURE = 1.0, 2
"""How often we check who drives; this many equal results in a row mean a change, not a short restart."""
_STATUS = {
    "turn.done": "complete", "turn.failed": "error", "turn.cancelled": "interrupted", "turn.given_up": "error",
    "turn.waiting": "complete",
}  # fmt: skip
_BEGAN = ("turn.begun", "turn.resumed", "turn.woken")
_CHILDREN = {BEGUN: "subagent.start", ENDED: "subagent.complete"}
News = tuple[str, dict[str, Any] | None]


@dataclass(slots=True)
class _Turn:
    """A turn of another process."""

    turn: Turn
    text: str = ""
    """Its answer, if its last step is one."""
    steps: int | None = 0
    """How many of its steps the running process has stored; None if we joined in the middle."""
    calls: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    shown: str = ""
    """The text that was sent of the step whose row is not stored yet."""
    asked: set[str] = field(default_factory=set)


class Follower:
    """Follows one conversation, from now on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._live: LiveSession = session["live"]
        self._db = self._live.db
        self.conversation = self._live.conversation()
        self._segment: str = self._db.get_compression_tip(session["session_key"])
        self._head, self._cursor = self._now()
        self._watch_again = 0.0
        self._chat = self._live.served()
        items = self._db.outbox.list(limit=1)
        self._item = items[0].id if items else 0
        self._notices: deque[OutboxItem] = deque()
        """Messages of the gateway to the chat that are not sent yet, in order."""
        self.turn: _Turn | None = None
        self.waits = False
        """Whether something is to be sent, but not yet."""
        self.abandoned = False
        """Whether nobody works on the followed turn: its gateway has ended."""
        self._driver, self._changed_checks, self._driver_until = session_view.driver(session), 0, 0.0
        self._title = self._db.get_session_title(self._segment)
        self._title_until = 0.0 if self._title else time.monotonic() + _TITLE_SECONDS
        for turn in self._db.turns.list(state="running", conversation_id=self.conversation):
            # The next gateway recovers a gateway's turn; a terminal's lost turn waits for the next prompt.
            under_way = turn.route is not None or process_identity.at_work(self._db, self.conversation)
            if turn.id not in self._live.own and under_way and any(self._messages_of(turn)):
                self._join(turn)
        for turn in self._db.turns.waiting(self.conversation):
            asked = self._db.approvals.get(turn.reason or "")
            if asked is not None and asked.state == "pending":
                self._live.approvals.asked_elsewhere(asked, now=self._db.clock())

    def _join(self, turn: Turn) -> None:
        """Follow a running turn from now on."""
        self.turn = _Turn(turn, steps=None)

    def _newest(self) -> int:
        state = self._db.live_state(self._segment)
        return 0 if state is None else state.head_id

    def _now(self) -> tuple[int, str]:
        """The newest row and the end of the log at one moment: nothing happened while they were read."""
        cursor = START
        while True:
            head, before = self._newest(), cursor
            batch = self._db.events.since(cursor, conversation_id=self.conversation)
            while batch.events:
                cursor = batch.cursor
                batch = self._db.events.since(cursor, conversation_id=self.conversation)
            if cursor == before and head == self._newest():
                return head, cursor

    def release_turn(self) -> str | None:
        """This process recovers the followed turn: returns the sent text of its last step; None: nothing was sent."""
        turn, self.turn = self.turn, None
        return None if turn is None else turn.shown

    @property
    def upto(self) -> int | None:
        """The last row that was sent; None when the conversation has moved to another segment."""
        return self._head if self._segment == self._session["session_key"] else None

    def news(self) -> Iterator[News]:
        batch = self._db.events.since(self._cursor, conversation_id=self.conversation)
        self.waits = self._must_wait(batch.events)
        if self.waits:
            return
        self._cursor = batch.cursor
        yield from self._gather_notices()
        for event in batch.events:
            yield from self._due_notices(before=event.at)
            yield from self._event_news(event)
        live, head = self._watch(), self._head  # before the rows: they say which step it belongs to
        if self.turn is not None:
            yield from self._rows(self.turn)
        self._questions(self.turn)
        yield from self._due_notices()
        if self.turn is not None and live is not None:
            if self.turn.steps is None and self._head == head:
                self.turn.steps = live.step
            yield from _new_text(self.turn, live)
        yield from self._driver_change()
        if time.monotonic() < self._title_until:
            yield from self._new_title()

    def _new_title(self) -> Iterator[News]:
        """Report the automatic title, which a conversation gets beside its first turns."""
        title = self._db.get_session_title(self._segment)
        if title and title != self._title:
            self._title, self._title_until = title, 0.0
            yield "session.title", {"session_id": self._segment, "title": title}

    def _driver_change(self) -> Iterator[News]:
        """Report that the gateway has ended, or one has started: the other one drives from now on."""
        if time.monotonic() < self._driver_until:
            return
        self._driver_until, driver = time.monotonic() + _DRIVER_SECONDS, session_view.driver(self._session)
        self._changed_checks = 0 if driver == self._driver else self._changed_checks + 1
        if self._changed_checks < _SURE:
            return
        self._driver, self._changed_checks = driver, 0
        self.abandoned = (
            self.turn is not None and driver == "here" and not process_identity.at_work(self._db, self.conversation)
        )
        if self.abandoned:
            said = "the gateway has ended; the turn continues when it is back, or here with your next message"
            yield "status.update", {"kind": "lifecycle", "text": said}
        yield "session.info", session_view.info(self._session)

    def _must_wait(self, events: tuple[Event, ...]) -> bool:
        """Whether a turn of ours has begun or was recovered, and its agent is about to report it."""
        begun = [one.turn_id for one in events if one.kind in _BEGAN]
        if not begun or not self._session["running"]:
            return False
        lease, agent = self._db.leases.get(self.conversation), self._session["agent"]
        ours = lease is not None and agent is not None and lease.holder == agent.holder
        return ours and begun[-1] not in self._live.own

    # -- a turn --------------------------------------------------------------------------------------------

    def _event_news(self, event: Event) -> Iterator[News]:
        self._live.own_queued |= event.kind == QUEUED
        if event.kind in _CHILDREN and event.turn_id not in self._live.own:
            child = self._db.children.get(str((event.detail or {}).get("child")))
            if child is not None:
                yield _CHILDREN[event.kind], child_facts(child)
        if event.kind in _STATUS and not self._title:
            self._title_until = time.monotonic() + _TITLE_SECONDS
        if event.turn_id in self._live.own:  # its agent reports it
            self._segment = self._db.get_compression_tip(self._segment)
            self._head = self._newest()
        elif event.kind in _BEGAN and event.turn_id is not None:
            yield from self._turn_began(event)
        elif event.kind in _STATUS and self.turn is not None and event.turn_id == self.turn.turn.id:
            yield from self._turn_ended(self.turn, event)
        elif event.kind in _STATUS and self.turn is None:
            if self._follow_compression():  # it was compressed
                yield "session.info", session_view.info(self._session)
        elif event.kind in ("undo", "redo"):
            self._head = self._newest()
            yield "session.info", {**session_view.info(self._session), "rewound": event.kind}

    def _turn_began(self, event: Event) -> Iterator[News]:
        self.abandoned = False
        if self.turn is not None and event.turn_id == self.turn.turn.id:
            self.turn.steps = 0  # its text is repeated; the sent part is not sent again
            said = "the process that worked on this died; another one continues where it stopped"
            yield "status.update", {"kind": "lifecycle", "text": said}
            return
        assert event.turn_id is not None
        turn = self._db.turns.get(event.turn_id)
        if turn is None:
            return
        self.turn = _Turn(turn)
        rows, typed = self._messages_of(turn)
        if event.kind == "turn.begun" and not rows and typed is None:
            self.turn = None  # it has no messages: the conversation is being compressed
            return
        ours = any(row.id in self._live.handed_in for row in rows)
        for row in rows if event.kind == "turn.begun" else ():  # else it is on the screen
            text = _said(row.payload or {})
            if row.id in self._live.handed_in:
                sender = self._live.handed_in.pop(row.id)
                if sender is not None:
                    self._live.typed(session_view.user_message(text, str(self._session["source"])), by=sender)
            elif (
                sender := self._live.handed_in.pop(terminal_messages.brought_by(self._db, row) or 0, None)
            ) is not None:
                self._live.typed(session_view.user_message(text, str(self._session["source"])), by=sender, shown=False)
            else:
                typed_here = terminal_messages.is_from_terminal(row)
                yield (
                    "message.user",
                    session_view.user_message(text, "tui" if typed_here else row.platform, typed=typed_here),
                )
        if typed is not None and event.kind == "turn.begun":
            yield "message.user", session_view.user_message(text_of(typed.get("content")), self._source_of(turn))
        yield "message.start", None if ours else {"elsewhere": True}

    def _messages_of(self, turn: Turn) -> tuple[tuple[InboxRow, ...], dict[str, Any] | None]:
        """The messages that a turn answers, or its typed prompt; a compression's turn has neither."""
        rows: tuple[InboxRow, ...] = () if turn.route is None else self._db.inbox.of_turn(turn.id)
        return rows, None if rows else self._prompt_of(turn)

    def _source_of(self, turn: Turn) -> str:
        """Where a prompt without a row was written: at a terminal, or with a command in a chat."""
        return next((one.platform for one in self._db.inbox.of_trace(turn.trace_id) if not _is_typed(one)), "tui")

    def _prompt_of(self, turn: Turn) -> dict[str, Any] | None:
        """The prompt of a turn, but not the summary that a compression wrote."""
        for segment in dict.fromkeys((self._segment, turn.session_id)):
            after = uncompress.carried_up_to(self._db, segment)
            found: dict[str, Any] | None = self._db.said_in_turn(segment, turn.id, after=after)
            if found is not None:
                return found
        return None

    def _turn_ended(self, turn: _Turn, event: Event) -> Iterator[News]:
        yield from self._rows(turn)
        number = (event.detail or {}).get("outbox")
        item = None if number is None else self._db.outbox.get(int(number))
        text = turn.text if item is None else str(item.payload.get("text") or turn.text)
        self.turn = None
        for approval in self._live.approvals.elsewhere() if event.kind != "turn.waiting" else ():
            self._live.approvals.closed(approval)
        yield (
            "message.complete",
            {"text": text, "usage": session_view.usage(self._session), "status": _STATUS[event.kind]},
        )
        yield "session.info", session_view.info(self._session)

    def _follow_compression(self) -> bool:
        """Follow the conversation to its new segment after a compression."""
        tip = self._db.get_compression_tip(self._segment)
        if tip == self._segment:
            return False
        self._segment = self._session["session_key"] = tip
        self._head = uncompress.carried_up_to(self._db, tip) or self._newest()
        return True

    def _rows(self, turn: _Turn) -> Iterator[News]:
        if self._follow_compression():
            yield "session.info", session_view.info(self._session)
        found = self._db.live_rows(self._segment, after=self._head)
        for number, row, whose in zip(found.ids, found.messages, found.turns, strict=True) if found is not None else ():
            if whose not in (None, turn.turn.id):
                continue  # the next turn is fast; it is reported after its begin event
            self._head = number
            yield from self._due_notices(before=float(row.get("timestamp") or 0.0))
            yield from self._tool_ended(turn, row) if row["role"] == "tool" else _row(turn, row)

    def _tool_ended(self, turn: _Turn, row: dict[str, Any]) -> Iterator[News]:
        number, content = str(row.get("tool_call_id")), text_of(row.get("content"))
        name, summary, began = turn.calls.pop(number, (str(row.get("tool_name") or "tool"), "", 0.0))
        ended = float(row.get("timestamp") or 0.0)
        seconds = max(0.0, ended - began - self._waited(turn, since=began)) if began else 0.0
        yield "tool.complete", {
            "tool_id": number, "name": name, "args": {}, "result": content, "summary": summary,
            "duration_s": round(seconds, 3), "is_error": output.looks_failed(name, content),
        }  # fmt: skip

    def _waited(self, turn: _Turn, *, since: float) -> float:
        """How long a person took to answer since then, which does not count for the tool."""
        asked = [one for one in map(self._db.approvals.get, turn.asked) if one is not None and one.created_at >= since]
        return float(sum((one.decided_at or one.expires_at) - one.created_at for one in asked))

    def _watch(self) -> LiveText | None:
        """The text that a gateway's turn publishes because we watch."""
        if self.turn is None or self.turn.turn.route is None:
            return None
        if time.monotonic() >= self._watch_again:
            self._watch_again = time.monotonic() + WATCH_AGAIN_SECONDS
            with contextlib.suppress(HermesError):  # a full disk: the answer is shown when it is stored
                self._db.live_views.watch(self.conversation)
        found: LiveText | None = self._db.live_views.get(self.conversation)
        return found if found is not None and found.turn_id == self.turn.turn.id else None

    def _questions(self, turn: _Turn | None) -> None:
        """Show open questions on this screen, too, and remove those answered elsewhere. A question may outlive its
        turn's work: the turn waits for the answer."""
        approvals, now = self._live.approvals, self._db.clock()
        if turn is None and not approvals.elsewhere():
            return
        pending = {one.id: one for one in self._db.approvals.pending()}
        for one in pending.values():
            if turn is not None and one.turn_id == turn.turn.id and one.id not in turn.asked:
                turn.asked.add(one.id)
                approvals.asked_elsewhere(one, now=now)
        for number in approvals.elsewhere():
            if number not in pending:
                approvals.closed(number)

    # -- the gateway's own messages ------------------------------------------------------------------------

    def _due_notices(self, *, before: float = math.inf) -> Iterator[News]:
        """Send the gateway's messages up to then: a notice comes before the event it announces."""
        while self._notices and self._notices[0].created_at <= before:
            item = self._notices.popleft()
            words = _notice_text(item.payload)
            if item.dedup_key in self._live.known_notices:
                words = words.partition("\n")[2]
            if words:
                yield "notification.show", {"text": words, "level": "info", "kind": item.payload.get("kind")}

    def _gather_notices(self) -> Iterator[News]:
        """Collect the gateway's messages to the chat; an answer comes from its turn."""
        newest = self._db.outbox.list(limit=1)
        if not newest or newest[0].id <= self._item:
            return
        new = [item for item in self._db.outbox.list(limit=_LISTED) if item.id > self._item]
        self._item = new[0].id
        chat = self._live.served()
        if chat is None and self._chat is not None and not attach.has_route(self._db, self._segment):
            said = "the chat now has another conversation; messages typed here are answered here"
            yield "status.update", {"kind": "lifecycle", "text": said}
            yield "session.info", session_view.info(self._session)
        self._chat = chat
        for item in reversed(new):
            told = item.payload.get("kind") in ("command", "notice") or item.dedup_key.startswith(clarify.KEY)
            beside_itself = item.dedup_key.startswith("notice:beside:")
            if chat is not None and item.chat_id == chat.source.chat_id and told and not beside_itself:
                self._notices.append(item)


def _notice_text(payload: Mapping[str, Any]) -> str:
    """The text of a gateway's message; buttons become numbers, which can be typed."""
    labels = [str(button.get("label")) for row in payload.get("buttons") or () for button in row]
    return "\n".join([str(payload.get("text") or ""), *(f"  {at}. {one}" for at, one in enumerate(labels, start=1))])


def _new_text(turn: _Turn, live: LiveText) -> Iterator[News]:
    """The new text of the step whose row is not stored yet."""
    if live.step == turn.steps and len(live.text) > len(turn.shown) and live.text.startswith(turn.shown):
        yield "message.delta", {"text": live.text[len(turn.shown) :]}
        turn.shown = live.text


def _row(turn: _Turn, row: dict[str, Any]) -> Iterator[News]:
    if row["role"] == "assistant":
        shown, text, calls = turn.shown, text_of(row.get("content")), list(calls_of(row))
        turn.shown, turn.steps = "", None if turn.steps is None else turn.steps + 1
        turn.text = "" if calls else text
        rest = text[len(shown) :] if text.startswith(shown) else ""
        if rest:
            yield "message.delta", {"text": rest}
        if calls and text.strip():
            yield "message.interim", {"text": text, "already_streamed": True}
        for call in calls:
            summary = session_view.call_summary(call)
            turn.calls[call.id] = (call.name, summary, float(row.get("timestamp") or time.time()))
            yield "tool.start", {"tool_id": call.id, "name": call.name, "context": summary}


class FollowThread:
    """The one thread. It starts with the first session; between two checks it calls `meanwhile`."""

    def __init__(self, services: RpcServices, meanwhile: Callable[[], None]) -> None:
        self._services, self._meanwhile = services, meanwhile
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = _Thread(target=self._check_all, daemon=True, name="rpc-looker")
                self._thread.start()

    def _check_all(self) -> None:
        while True:
            time.sleep(_SECONDS)
            self._meanwhile()
            with self._services.lock:
                sessions = list(self._services.sessions.items())
            if not sessions:
                with self._lock, self._services.lock:
                    if not self._services.sessions:
                        self._thread = None
                        return
            for sid, session in sessions:
                if session.get("live") is not None and session["looking"].acquire(blocking=False):
                    try:
                        self._check(sid, session)
                    finally:
                        session["looking"].release()
                    self._take_own(sid, session)

    def _take_own(self, sid: str, session: Session) -> None:
        """Start the lane when a row of Hermes itself waits in it. Without the row's event nothing is read."""
        if session["following"] is None or not session["live"].own_queued or session["running"]:
            return
        try:
            prompt.take_own(self._services, sid, session)
        except (HermesError, RpcError) as error:  # the next check follows
            session["live"].own_queued = True
            _log.warning("a row of Hermes's own waits: %s", error, extra={"action": "rpc_follow"})

    @contextlib.contextmanager
    def still(self, sid: str, session: Session) -> Iterator[Follower | None]:
        """Report everything that happened elsewhere, and nothing more during this block."""
        with session["looking"]:
            self._check(sid, session)
            yield session["following"]

    def _check(self, sid: str, session: Session) -> None:
        try:
            following: Follower | None = session["following"]
            if following is None:
                if session["running"] or session["live"].session_id is None:
                    return  # nothing of it is stored yet, or we are storing it
                following = session["following"] = Follower(session)
            for kind, payload in following.news():
                self._services.emit(kind, sid, payload)
        except HermesError as error:  # the store is busy, or the conversation was deleted; the next check follows
            _log.warning("a conversation was not checked: %s", error.one_line(), extra={"action": "rpc_follow"})
        except Exception:  # noqa: BLE001 - boundary: one session must not end the looking at the others
            _log.exception("a conversation cannot be followed", extra={"action": "rpc_follow"})
            session["following"] = None


def _is_typed(row: InboxRow) -> bool:
    return row.platform == LOCAL or terminal_messages.is_from_terminal(row)


def _said(payload: Mapping[str, Any]) -> str:
    """The words of a chat's message; for one without words what came: `[voice message]`, `[photo: cat.jpg]`."""
    if text := str(payload.get("text") or ""):
        return text
    came = [(str(one.get("kind") or "file"), str(one.get("name") or "")) for one in payload.get("attachments") or ()]
    return " ".join("[voice message]" if kind == "voice" else f"[{kind}{name and f': {name}'}]" for kind, name in came)
