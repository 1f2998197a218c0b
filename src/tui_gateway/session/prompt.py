"""A prompt from submission to answer: who drives it, what happens while a turn runs, and the lane's worker.

`submit` stores the prompt as an inbox row of the conversation's local route, and answers. One daemon thread works
through the lane: it waits for the agent and for turns of others, claims the rows in the transaction that opens the
turn, runs the agent and continues until nothing waits; the end of the turn ends its rows. Nobody joins the thread. A
process that dies leaves its turn and its queued rows in the store: the process that opens the conversation next
continues the turn and takes the rows (`recover`). A session without a store (the seed tests') only lacks the rows.

Limits: on another machine nobody can tell whether a process is dead, so its rows stay with it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent import mentions, sync_loop
from hermes_agent.agent import ConversationBusy
from hermes_agent.messages import text_of
from hermes_config import config as configuration
from hermes_config.errors import HermesError
from hermes_state.errors import NotQueued
from tui_gateway.session import session_view
from tui_gateway.session.live_session import LiveSession, Prompt
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Result, RpcError

if TYPE_CHECKING:
    from tui_gateway.session.services import RpcCall, RpcServices, Session
    from tui_gateway.wire.transports import FrameTransport

_log = logging.getLogger("hermes.rpc")
_AGENT_SECONDS = 30.0
_LOOK_SECONDS = 0.25
_NEXT = "another turn is running in this conversation; yours is next"
_AFTER_COMPRESSION = "the conversation is being compressed; yours is next"
_NOT_SAVED = "The conversation changed meanwhile: this answer is shown here and is not part of it."


_LOST = Prompt(None)
"""Instead of a prompt: the turn that a dead process left here."""


def submit(call: RpcCall) -> Result:
    """`prompt.submit`."""
    session, lane = call.session, PromptLane(call.services, call.sid, call.session)
    content = _content(call.params.get("text"))
    program, key = bool(call.params.get("program")), call.word("key") or None
    if lane.live is not None and isinstance(content, str) and not program:  # with the files that `@` names, read here
        content = mentions.whole(content, lane.live.file_context())
    named: dict[str, Any] = {}
    if not program and (found := mentions.files(text_of(content))):
        named["files"] = found
    call.services.rebind(call.sid, session)
    ordinal, sender = call.params.get("truncate_before_user_ordinal"), call.services.transport()
    if ordinal is not None and lane.live is not None and lane.live.compressing:
        raise RpcError(frames.BUSY, "the conversation is being compressed; send it again in a moment")
    if not session["running"] and (handed := _handed_in(session, content, sender, ordinal, key=key)) is not None:
        return {**handed, **named}
    with session["history_lock"]:
        idle = not session["running"] and not session.get("waits")
        if idle:
            _truncate(session, ordinal)
        prompt = Prompt(content, sender) if lane.live is None else lane.live.stored(content, sender, key)
        named |= {"row": prompt.rows[0]} if prompt.rows else {}
        if prompt.known:
            return {"status": "known", "driver": "here", **named}
        if not idle:
            return {"status": lane.handle_busy(prompt, program=program), "driver": "here", **named}
        session.setdefault("prompts", []).append(prompt)
        first = lane.start()
    call.services.thread(lambda: lane.work(first))
    return {"status": "queued" if first is None else "streaming", "driver": "here", **named}


def recover(call: RpcCall) -> Result:
    """`session.recover`: recover the turn and prompts of a dead process, without waiting for the next prompt."""
    session, lane = call.session, PromptLane(call.services, call.sid, call.session)
    with session["history_lock"]:
        other = call.live.other_turn()
        waits = session["waits"] or call.live.served() is not None
        if session["running"] or waits or not (other or session["prompts"]):
            return {"status": "idle"}
        if other == "elsewhere":
            return {"status": "elsewhere"}
        first = lane.begin_again() if other == "lost" else lane.start()
    call.services.thread(lambda: lane.work(first))
    return {"status": "streaming"}


def steer(session: Session, text: str) -> bool:
    """`session.steer`: send a message into the running turn; False when no turn takes it."""
    live: LiveSession = session["live"]
    with session["history_lock"]:
        agent = session["agent"]
        if not session["running"] or agent is None or not agent.in_turn:
            return False
        prompt = live.stored(text, None)
        if _steered(session, agent, prompt):
            return True
        live.db.inbox.finish(prompt.rows, "dropped", reason="no turn took it")
        return False


def adopt_prompts(session: Session) -> None:
    """Adopt the queued prompts of a dead process when a conversation is opened."""
    with session["history_lock"]:
        _adopt(session, session["live"].left_prompts())
    session["live"].recover_children()


def take_own(services: RpcServices, sid: str, session: Session) -> None:
    """Run rows of Hermes itself that came while the session is open and idle, like a prompt."""
    live, lane = session["live"], PromptLane(services, sid, session)
    with session["history_lock"]:
        if session["running"] or session["waits"]:
            return  # its end looks again
        live.own_queued = False
        if not _adopt(session, [one for one in live.left_prompts() if one.own]):
            return
        first = lane.start()
    services.thread(lambda: lane.work(first))


def _adopt(session: Session, found: list[Prompt]) -> bool:
    """Let these prompts wait here, if they do not yet; whether any of them is new."""
    known = {row for prompt in session["prompts"] for row in prompt.rows}
    new = [one for one in found if known.isdisjoint(one.rows) and not _taken_elsewhere(session, one)]
    session["prompts"] += new
    return bool(new)


def _taken_elsewhere(session: Session, prompt: Prompt) -> bool:
    """Whether a gateway now drives the conversation and takes the prompt, or another process has taken it."""
    try:
        return _handed_in(session, prompt.content, None, rows=prompt.rows) is not None
    except NotQueued:
        return True


def forget(session: Session, *, reason: str = "taken back") -> None:
    """Drop all waiting prompts."""
    with session["history_lock"]:
        waiting, session["prompts"] = session.get("prompts") or [], []
        rows = [row for prompt in waiting for row in prompt.rows]
        if rows:
            session["live"].db.inbox.finish(rows, "dropped", reason=reason)


def withdraw(session: Session, row: int) -> bool:
    """Drop one waiting prompt; False when it does not wait here."""
    with session["history_lock"]:
        found = next((one for one in session["prompts"] if row in one.rows), None)
        if found is None:
            return False
        session["prompts"].remove(found)
        session["live"].db.inbox.finish(found.rows, "dropped", reason="taken back")
        return True


def _content(given: Any) -> Any:
    if isinstance(given, str) and given.strip():
        # A lone surrogate cannot be stored, and no person typed it.
        return given.encode("utf-8", "replace").decode()
    if isinstance(given, list) and given and all(map(_is_part, given)):
        return given
    raise RpcError(frames.BAD_VALUE, "text must be non-empty, or a list of content parts: text, pictures as data:")


def _is_part(part: Any) -> bool:
    """Text, or an embedded picture: a conversation may contain only parts that every model can always read."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "text":
        return isinstance(part.get("text"), str)
    picture = part.get("image_url") if part.get("type") == "image_url" else None
    url = picture.get("url") if isinstance(picture, dict) else None
    return isinstance(url, str) and url.startswith("data:image/")


def _handed_in(
    session: Session, content: Any, sender: FrameTransport | None, ordinal: Any = None, *, rows: tuple[int, ...] = (),
    key: str | None = None,
) -> Result | None:  # fmt: skip
    """Hand the prompt to the gateway if it drives this conversation, replacing these rows."""
    live: LiveSession | None = session.get("live")
    chat = None if live is None else live.served()
    if live is None or chat is None:
        return None
    _truncate(session, ordinal)
    conversation = live.conversation()
    busy = live.db.turns.list(state="running", conversation_id=conversation, limit=1)
    live.db.live_views.watch(conversation)  # before the turn begins
    row = chat.hand_in(live.db, content, instead_of=rows, key=key)
    live.handed_in[row.id] = sender
    session["last_active"] = time.time()
    return {"status": "queued" if busy else "streaming", "driver": "gateway", "row": row.id}


def _truncate(session: Session, ordinal: Any) -> None:
    """Edit and resend: undo the messages from that user message on; nothing is deleted."""
    if ordinal is None:
        return
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise RpcError(frames.BAD_VALUE, "truncate_before_user_ordinal must be a whole number")
    live: LiveSession | None = session.get("live")
    key = session["session_key"]
    stored = live is not None and live.db.get_session(key) is not None
    rows = live.db.get_messages_as_conversation(key) if live is not None and stored else session["history"]
    spoken = [at for at, row in enumerate(rows) if row["role"] == "user"]
    if not 0 <= ordinal < len(spoken):
        raise RpcError(frames.NOT_HERE, f"there are {len(spoken)} user messages")
    if live is not None and stored:
        live.db.undo.take_back(key, len(spoken) - ordinal, stays=lambda content: False)
    else:
        session["history"] = list(rows[: spoken[ordinal]])
    session["history_version"] += 1


def _steered(session: Session, agent: Any, prompt: Prompt) -> bool:
    """True when the running turn takes the text, and its row with it."""
    if not prompt.rows:
        return bool(agent.steer(prompt.content))
    if not agent.steer(prompt.content, inbox_id=prompt.rows[0]):
        return False
    session["steered"].append(prompt)
    return True


class PromptLane:
    """The prompts of one live session. `work` runs on its own thread, which nobody joins."""

    def __init__(self, services: RpcServices, sid: str, session: Session) -> None:
        self._services, self._sid, self._session = services, sid, session
        self.live: LiveSession | None = session.get("live")

    def _tell(self, kind: str, payload: Mapping[str, Any] | None = None) -> None:
        self._services.emit(kind, self._sid, payload)

    def start(self) -> Prompt | None:
        """Begin the first prompts of an idle lane; None when they wait behind somebody else's turn."""
        if self.live is not None and self.live.other_turn():
            self._session["waits"] = True
            return None
        return self._begin()

    def _begin(self) -> Prompt:
        """Make the waiting prompts one turn's prompt: consecutive texts are joined, as in a chat."""
        waiting: list[Prompt] = self._session["prompts"]
        texts, lane = 0, waiting[0].lane
        while texts < len(waiting) and isinstance(waiting[texts].content, str) and waiting[texts].lane == lane:
            if waiting[texts].own:
                break
            texts += 1
        taken = waiting[: max(1, texts)]
        prompt = taken[0]
        if len(taken) > 1:
            rows = sum((one.rows for one in taken), ())
            prompt = Prompt("\n\n".join(one.content for one in taken), taken[-1].sender, rows, lane)
        said = self._said(prompt)
        with self._services.event_lock:  # a client that joins now either gets the event or finds the prompt
            self._run_from_now(said["text"])
            if prompt.sender is not None:
                self._services.typed(self._sid, self._session, said, by=prompt.sender)
            elif prompt.own:
                self._tell("message.user", said)
            del waiting[: len(taken)]  # only now: at any moment it either waits or runs
        return prompt

    def begin_again(self) -> Prompt:
        """Recover a lost turn, whose prompt is already stored."""
        with self._services.event_lock:
            self._run_from_now("")
        return _LOST

    def _run_from_now(self, user: str) -> None:
        now = time.time()
        turn = {"user": user, "assistant": "", "streaming": True, "started_at": now, "updated_at": now}
        self._session.update(running=True, _turn_cancel_requested=False, last_active=now, inflight_turn=turn)

    def _said(self, prompt: Prompt) -> dict[str, Any]:
        source = "hermes" if prompt.own else str(self._session.get("source") or "tui")
        return session_view.user_message(prompt.text, source, typed=not prompt.own)

    def handle_busy(self, prompt: Prompt, *, program: bool = False) -> Literal["steered", "queued"]:
        """Handle a prompt that arrives while a turn runs here or waits. A program's prompt waits for its turn."""
        session, agent, is_text = self._session, self._session.get("agent"), isinstance(prompt.content, str)
        mode = "queue" if program else configuration.load_or_last_good()[0].display.busy_input_mode
        if mode == "steer" and agent is not None and is_text and _steered(session, agent, prompt):
            assert prompt.sender is not None
            self._services.typed(self._sid, session, self._said(prompt), by=prompt.sender)
            prompt.sender = None
            return "steered"
        session.setdefault("prompts", []).append(prompt)
        compresses = agent is not None and getattr(agent, "compressing", False)
        if mode != "queue" and agent is not None and session["running"] and not compresses:
            agent.interrupt(prompt.content if is_text else None)
        return "queued"

    # -- the worker's thread -----------------------------------------------------------------------------------

    def work(self, prompt: Prompt | None) -> None:
        """Run this prompt (None: it waits behind somebody's turn), and then the waiting ones."""
        session = self._session
        while True:
            done, waits = prompt, prompt is None
            if prompt is not None:
                with self._errors_reported():
                    if self.live is not None:
                        self.live.drop_outdated_agent()
                    if "agent_ready" in session:  # it may have been dropped while the prompt waited
                        self._services.build(self._sid, session)
                    self._one(prompt)
                with self._errors_reported():
                    self._settle(prompt)
                with session["history_lock"]:
                    self._end()
                    waits = session["waits"] = bool(session.get("prompts"))
            prompt = None
            with self._errors_reported():
                if waits:
                    prompt = self._next(after=done)
                own = None if prompt is _LOST else prompt
                if own is not None and _handed_in(session, own.content, None, rows=own.rows) is not None:
                    self._end()  # a gateway started meanwhile
                    prompt = None
                session_view.tell(self._services, self._sid, session)
            if prompt is None:
                return

    def _next(self, *, after: Prompt | None) -> Prompt | None:
        """The waiting prompts, once the conversation is free for them; None when they were dropped.

        A lost turn comes first, but only once: if it could not be ended, the prompt's own turn says why.
        """
        session, told = self._session, False
        try:
            while True:
                before = "" if self.live is None else self.live.other_turn()
                if not before and self.live is not None:
                    with self._services.still(self._sid, session):  # the result of the other turn is sent first
                        pass
                with session["history_lock"]:
                    if before != "elsewhere" or not session["prompts"]:
                        session["waits"] = False
                        if not session["prompts"]:
                            return None
                        return self.begin_again() if before == "lost" and after is not _LOST else self._begin()
                told = told or self._tell_next()
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            session["waits"] = False  # the prompts stay for the next one
            raise

    def _tell_next(self) -> bool:
        text = _AFTER_COMPRESSION if self.live is not None and self.live.compressing else _NEXT
        self._tell("status.update", {"kind": "lifecycle", "text": text})
        return True

    def _settle(self, prompt: Prompt) -> None:
        """After a turn: texts that came too late for it become prompts again, before all others. A prompt whose turn
        did not begin gets its outcome, unless this process ends: then the next one answers it."""
        session = self._session
        if self.live is None or session["left_open"]:
            return
        inbox = self.live.db.inbox
        with session["history_lock"]:
            steered, session["steered"] = session["steered"], []
            late = [one for one in steered if (row := inbox.get(one.rows[0])) is not None and row.state == "queued"]
            session["prompts"][:0] = late
        if self.live.turn is None and prompt.rows:
            stopped = session["_turn_cancel_requested"]
            reason = "stopped before its turn began" if stopped else "its turn could not begin"
            inbox.finish(prompt.rows, "dropped" if stopped else "error", reason=reason)

    def _end(self) -> None:
        with self._services.event_lock:
            self._session.update(running=False, inflight_turn=None, last_active=time.time())
            if self.live is not None:
                self.live.turn = None

    @contextlib.contextmanager
    def _errors_reported(self) -> Iterator[None]:
        """Report errors on a turn's thread to its client, and let the thread continue."""
        try:
            yield
        except HermesError as error:
            self._tell("error", {"message": error.one_line()})
        except concurrent.futures.CancelledError:
            # It continues when the conversation is opened again.
            _log.info("a turn was released", extra={"action": "rpc_turn"})
        except Exception as error:  # noqa: BLE001 - boundary: a turn's thread
            _log.exception("a turn failed", extra={"action": "rpc_turn"})
            self._tell("error", {"message": f"something went wrong inside Hermes ({type(error).__name__})"})

    def _one(self, prompt: Prompt) -> None:
        session, agent = self._session, _agent(self._session)
        if session.get("_turn_cancel_requested"):
            self._complete("", "interrupted")
            return
        with session["history_lock"]:
            version, before = session["history_version"], list(session["history"])
        seen = ""
        if prompt is _LOST:
            seen = self._take_over_seen()
        elif self.live is None:
            self._tell("message.start")
        result = self._run(agent, prompt, before, RepeatedStep(seen))
        warning = self._keep(result, version)
        self._services.sync(self._sid, session, clear_pending_title=False, restart_slash_worker=True)
        status, text = _ending(result)
        more = {"warning": warning} if warning else {}
        if isinstance(result, dict) and result.get("last_reasoning"):
            more["reasoning"] = str(result["last_reasoning"])
        rendered = self._services.rendered(text, session["cols"])
        if rendered is not None:
            more["rendered"] = rendered
        session["inflight_turn"] = None
        self._complete(text, status, **more)
        if status == "complete":
            self._give_title()
        if self.live is None and isinstance(result, dict) and result.get("pending_steer"):
            with session["history_lock"]:  # as `_settle` does for rows
                session.setdefault("prompts", []).insert(0, Prompt(str(result["pending_steer"])))

    def _complete(self, text: str, status: str, **more: Any) -> None:
        shown = {"text": text, "usage": session_view.usage(self._session), "status": status, **more}
        self._tell("message.complete", shown)

    def _take_over_seen(self) -> str:
        """Take over the lost turn; returns the seen text of its last step. Clients may need its begin event first."""
        with self._services.still(self._sid, self._session) as following:
            seen = None if following is None else following.release_turn()
            if seen is None:
                self._tell("message.start", {"recovered": True})
            elif self._session["inflight_turn"] is not None:
                self._session["inflight_turn"]["assistant"] = seen
        return seen or ""

    def _run(self, agent: Any, prompt: Prompt, before: list[Any], repeated: RepeatedStep) -> Any:
        session, renderer = self._session, self._services.stream_renderer(self._session["cols"])

        def heard(given: str | None) -> None:
            if given is None:
                repeated.again()
            if not (piece := repeated.unseen(given or "")):
                return
            shown = {"text": piece}
            rendered = None if renderer is None else renderer.feed(piece)
            with self._services.event_lock:
                if (turn := session.get("inflight_turn")) is not None:
                    turn["assistant"] += piece
                self._tell("message.delta", shown if rendered is None else {**shown, "rendered": rendered})

        options: dict[str, Any] = {"stream_callback": heard}
        if self.live is None or before:  # given to session.create; the store has nothing yet
            options["conversation_history"] = before
        if self.live is not None or "task_id" in inspect.signature(agent.run_conversation).parameters:
            options["task_id"] = session["session_key"]
        if self.live is None:
            return agent.run_conversation(prompt.content, **options)

        def step_ended(text: str, already_streamed: bool = True) -> None:
            repeated.step_ended()
            self._tell("message.interim", {"text": text, "already_streamed": already_streamed})

        agent.interim_assistant_callback = step_ended
        request = self.live.turn_request(prompt, started=lambda: self._tell("message.start"))
        if prompt is _LOST:
            agent.stream_delta_callback = heard
            # Another process may have been faster, or nothing of it is left to answer.
            return sync_loop.run(agent.resume_unfinished(request=request)) or {"final_response": None}
        return self._in_turn(lambda: agent.run_conversation(prompt.content, request=request, **options))

    def _in_turn(self, run: Callable[[], Any]) -> Any:
        """Retry while another window has just begun a turn: then ours is next."""
        told = False
        while True:
            try:
                return run()
            except NotQueued:  # another process recovered it first, and reports it
                return {"final_response": None}
            except ConversationBusy:
                if self._session["_turn_cancel_requested"]:
                    return {"final_response": None, "interrupted": True}
            told = told or self._tell_next()
            time.sleep(_LOOK_SECONDS)

    def _keep(self, result: Any, version: int) -> str:
        """Make the result the session's history, unless that changed meanwhile; then warn."""
        session = self._session
        if not isinstance(result, dict) or result.get("messages") is None:
            return ""
        with session["history_lock"]:
            if self.live is None and session["history_version"] != version:
                _log.warning("history changed during a turn", extra={"action": "rpc_history"})
                return _NOT_SAVED
            session["history"] = list(result["messages"]) if self.live is None else []  # it is stored
            session["history_version"] += 1
            return ""

    def _give_title(self) -> None:
        """Set the title that was chosen before the conversation was stored."""
        key, title, db = self._session["session_key"], self._session.get("pending_title"), self._services.get_db()
        if not title or db is None:
            return
        try:
            if db.set_session_title(key, title):
                self._session["pending_title"] = None
                self._tell("session.title", {"session_id": key, "title": title})
        except ValueError:  # taken or invalid: the automatic one is used
            self._session["pending_title"] = None
        except Exception as error:  # noqa: BLE001 - boundary: the title waits for the next turn, whatever it was
            _log.warning("the title is kept for later (%s)", type(error).__name__, extra={"action": "rpc_title"})


def _agent(session: Session) -> Any:
    """The session's agent; a session without a ready flag already has one."""
    ready = session.get("agent_ready")
    if ready is not None and not ready.wait(_AGENT_SECONDS):
        raise HermesError(f"the agent was not ready after {_AGENT_SECONDS:.0f} s", hint="Send it again.")
    if session.get("agent_error"):
        raise HermesError(str(session["agent_error"]))
    return session["agent"]


def _ending(result: Any) -> tuple[str, str]:
    if not isinstance(result, dict):
        return "complete", str(result)
    text, error = str(result.get("final_response") or ""), result.get("error")
    status = "interrupted" if result.get("interrupted") else "error" if error else "complete"
    if not text and error and (result.get("failed") or result.get("partial")):
        text = f"Error: {error}"
    return status, text


class RepeatedStep:
    """The text of an interrupted step that is repeated: the part that was seen is not sent again."""

    def __init__(self, seen: str = "") -> None:
        self._seen, self._said = seen, ""

    def unseen(self, piece: str) -> str:
        """The part of the text to send. Nothing when it differs from what was seen: the whole answer replaces it."""
        before, self._said = len(self._said), self._said + piece
        return self._said[max(before, len(self._seen)) :] if self._said.startswith(self._seen) else ""

    def again(self) -> None:
        """The step is repeated from its beginning."""
        self._seen, self._said = max(self._seen, self._said, key=len), ""

    def step_ended(self) -> None:
        self._seen = self._said = ""
