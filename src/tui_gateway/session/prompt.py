"""A prompt and what comes of it: who drives it, what happens while a turn runs, and the turn on its thread.

`submit` answers at once. A turn that is driven here has one daemon thread, which waits for the agent and for turns of
others (`behind`), runs it, tells its end, and goes on with what was queued meanwhile; nobody joins it. All that must
not be lost is in the agent's own commits: a process that dies here leaves a turn that whoever comes next brings to its
end. That is a turn of its own: what is said meanwhile waits behind it, as behind any other.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

from gateway.turns import live_view
from hermes_agent import mentions, sync_loop
from hermes_agent.agent import ConversationBusy
from hermes_agent.commands.text import text_of
from hermes_config import config as configuration
from hermes_config.errors import HermesError
from hermes_state.errors import ConversationHeld
from tui_gateway.session import session_view
from tui_gateway.wire import frames
from tui_gateway.wire.frames import Params, Result, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tui_gateway.session.follow import Follower
    from tui_gateway.session.live_session import LiveSession
    from tui_gateway.session.services import RpcServices, Session
    from tui_gateway.wire.transports import FrameTransport


_log = logging.getLogger("hermes.rpc")
_AGENT_SECONDS = 30.0
_LOOK_SECONDS = 0.25
_LOST = object()
"""In place of a prompt: the turn that a lost process left here."""
_NEXT = "another place has a turn running in this conversation; yours is next"
_NOT_SAVED = "The conversation changed while this was answered: the answer is shown here and not part of it."


def submit(host: RpcServices, params: Params, *, build: Build, still: Still) -> Result:
    """`prompt.submit`. `build` starts the making of the agent where there is none; `still` is the looker's."""
    sid, session = host.session(params)
    place: LiveSession | None = session.get("place")
    content = _with_files(place, _content(params.get("text")))
    named = {"files": found} if isinstance(content, str) and (found := mentions.files(content)) else {}
    host.rebind(sid, session)
    if place is not None and place.compressing:
        raise RpcError(frames.BUSY, "the conversation is being compressed; send it again in a moment")
    ordinal = params.get("truncate_before_user_ordinal")
    sender = host.transport()
    if not session["running"] and (handed := _handed_in(session, content, sender, ordinal)) is not None:
        return {**handed, **named}
    while True:
        with session["history_lock"]:
            if not session["running"] and not session.get("waits"):
                _truncate(session, ordinal)
                waits = bool(other(session))
                if waits:
                    session.update(waits=True, queued_prompt={"text": content, "transport": sender})
                else:
                    _begin(host, sid, session, content, sender)
                break
        if (met := _meet(host, sid, session, content, sender)) is not None:
            return {**met, **named}
    host.thread(lambda: _drive(host, sid, session, None if waits else content, build, still))
    return {"status": "queued" if waits else "streaming", "driver": "here", **named}


def take_up(host: RpcServices, params: Params, *, build: Build, still: Still) -> Result:
    """`session.take_up`: the turn of a process that was lost, without waiting for the next prompt."""
    sid, session = host.session(params)
    place: LiveSession = session["place"]
    with session["history_lock"]:
        if session["running"] or session["waits"] or place.served() is not None or not place.has_open_turn():
            return {"status": "idle"}
        if not place.has_lost_turn():
            return {"status": "elsewhere"}
        _begin_again(host, session)
    host.thread(lambda: _drive(host, sid, session, _LOST, build, still))
    return {"status": "streaming"}


def _content(given: Any) -> Any:
    if isinstance(given, str) and given.strip():
        # A lone half of a character pair cannot be stored, and no person typed it.
        return given.encode("utf-8", "replace").decode()
    if isinstance(given, list) and given and all(map(_is_part, given)):
        return given
    raise RpcError(frames.BAD_VALUE, "text must be some words, or a list of content parts: text, or pictures as data:")


def _is_part(part: Any) -> bool:
    """Text, or a picture that came along: what stands in a conversation must be good for every model, for good."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "text":
        return isinstance(part.get("text"), str)
    picture = part.get("image_url") if part.get("type") == "image_url" else None
    url = picture.get("url") if isinstance(picture, dict) else None
    return isinstance(url, str) and url.startswith("data:image/")


def _with_files(place: LiveSession | None, content: Any) -> Any:
    """With what is named by `@`: read now and here, whoever drives the turn and whenever it comes to that."""
    if place is None or not isinstance(content, str):
        return content
    try:
        return mentions.whole(content, place.desk())
    except mentions.FileRefused as error:
        raise RpcError(frames.BAD_VALUE, error.one_line()) from error


def _handed_in(session: Session, content: Any, sender: FrameTransport | None, ordinal: Any = None) -> Result | None:
    """To the gateway, when it drives this conversation."""
    place: LiveSession | None = session.get("place")
    chat = None if place is None else place.served()
    if place is None or chat is None:
        return None
    if not isinstance(content, str):
        raise RpcError(frames.BAD_VALUE, "only text can be handed to the gateway that serves this chat")
    _truncate(session, ordinal)
    conversation = place.conversation()
    busy = place.db.turns.list(state="running", conversation_id=conversation, limit=1)
    live_view.look_on(place.config.home, conversation)  # before the turn begins
    place.handed_in[chat.hand_in(place.db, content).id] = sender
    session["last_active"] = time.time()
    return {"status": "queued" if busy else "streaming", "driver": "gateway"}


def _begin(host: RpcServices, sid: str, session: Session, content: Any, sender: FrameTransport | None) -> None:
    """Nobody is the sender of what all clients of the session have heard already."""
    now, said = time.time(), session_view.said(text_of(content), str(session.get("source") or "tui"))
    with host.telling:  # whoever comes now either hears of it or finds it
        session.update(running=True, _turn_cancel_requested=False, last_active=now)
        session["inflight_turn"] = {
            "user": said["text"], "assistant": "", "streaming": True, "started_at": now, "updated_at": now,
        }  # fmt: skip
        if sender is not None:
            host.typed(sid, session, said, by=sender)


def _begin_again(host: RpcServices, session: Session) -> None:
    """What was said to a lost turn is stored already."""
    now = time.time()
    with host.telling:
        session.update(running=True, _turn_cancel_requested=False, last_active=now)
        session["inflight_turn"] = {
            "user": "", "assistant": "", "streaming": True, "started_at": now, "updated_at": now,
        }  # fmt: skip


def _truncate(session: Session, ordinal: Any) -> None:
    """Edit and resend: what was said from that user message on is taken back, not deleted."""
    if ordinal is None:
        return
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise RpcError(frames.BAD_VALUE, "truncate_before_user_ordinal must be a whole number")
    place: LiveSession | None = session.get("place")
    key = session["session_key"]
    stored = place is not None and place.db.get_session(key) is not None
    rows = place.db.get_messages_as_conversation(key) if place is not None and stored else session["history"]
    spoken = [at for at, row in enumerate(rows) if row["role"] == "user"]
    if not 0 <= ordinal < len(spoken):
        raise RpcError(frames.NOT_HERE, f"there are {len(spoken)} user messages")
    if place is not None and stored:
        try:
            place.db.undo.take_back(key, len(spoken) - ordinal, stays=lambda content: False)
        except ConversationHeld as error:
            raise RpcError(frames.BUSY, error.one_line()) from error
    else:
        session["history"] = list(rows[: spoken[ordinal]])
    session["history_version"] += 1


def _meet(host: RpcServices, sid: str, session: Session, content: Any, sender: FrameTransport) -> Result | None:
    """A prompt meets a turn that runs here, or one that waits. None: the turn has just ended."""
    mode, agent = busy_mode(), session.get("agent")
    text = content if isinstance(content, str) else None
    if mode == "steer" and text is not None and agent is not None and agent.steer(text):
        host.typed(sid, session, session_view.said(text, str(session.get("source") or "tui")), by=sender)
        return {"status": "steered", "driver": "here"}
    with session["history_lock"]:
        if not session["running"] and not session.get("waits"):
            return None
        waiting = session.get("queued_prompt")
        merged = content
        if waiting is not None and isinstance(waiting["text"], str) and text is not None:
            merged = f"{waiting['text']}\n\n{text}"
        elif waiting is not None:
            raise RpcError(frames.BUSY, "something waits already")
        session["queued_prompt"] = {"text": merged, "transport": sender}
    if mode != "queue" and agent is not None and session["running"]:
        agent.interrupt(text)
    return {"status": "queued", "driver": "here"}


def busy_mode() -> str:
    return configuration.load_or_last_good()[0].display.busy_input_mode


# -- on the turn's thread --------------------------------------------------------------------------------------


def _drive(host: RpcServices, sid: str, session: Session, content: Any, build: Build, still: Still) -> None:
    """This prompt (None: it waits), and then what was queued meanwhile."""
    while True:
        done, waits = content, content is None
        if not waits:
            with _told(host, sid):
                if "agent_ready" in session:  # it may have been dropped while the prompt waited
                    build(sid, session)
                _one(host, sid, session, content, still)
            with session["history_lock"]:
                _end(host, session)
                waits = session["waits"] = session.get("queued_prompt") is not None
        content = None
        with _told(host, sid):
            if waits:
                content = _queued(host, sid, session, still, after=done)
            given = content not in (None, _LOST)
            if given and _handed_in(session, content, None) is not None:  # a gateway started meanwhile
                _end(host, session)
                content = None
            host.emit("session.info", sid, session_view.info(session))
        if content is None:
            return


def _queued(host: RpcServices, sid: str, session: Session, still: Still, *, after: Any) -> Any:
    """What waits, once the conversation is free for it; None when it was taken back.

    A lost turn comes first, but once: if it could not be ended, the prompt's own turn says why.
    """
    told = False
    try:
        while True:
            before = other(session)
            if not before and session.get("place") is not None:
                with still(sid, session):  # what the other turn came to is told first
                    pass
            with session["history_lock"]:
                waiting = session["queued_prompt"]
                if waiting is None or before != "elsewhere":
                    session["waits"] = False
                    return _come_up(host, sid, session, waiting, lost=before == "lost" and after is not _LOST)
            if not told:
                told = True
                host.emit("status.update", sid, {"kind": "lifecycle", "text": _NEXT})
            time.sleep(_LOOK_SECONDS)
    except BaseException:
        with session["history_lock"]:
            session.update(queued_prompt=None, waits=False)
        raise


def _come_up(host: RpcServices, sid: str, session: Session, waiting: Mapping[str, Any] | None, *, lost: bool) -> Any:
    if waiting is None:
        return None
    if lost:
        _begin_again(host, session)
        return _LOST
    _begin(host, sid, session, waiting["text"], waiting["transport"])
    session["queued_prompt"] = None  # after it: whoever asks at any moment hears that it waits, or that it runs
    return waiting["text"]


def _end(host: RpcServices, session: Session) -> None:
    with host.telling:
        session.update(running=False, inflight_turn=None, last_active=time.time())
        if session.get("place") is not None:
            session["place"].turn = None


@contextlib.contextmanager
def _told(host: RpcServices, sid: str) -> Iterator[None]:
    """What goes wrong on a turn's thread is told to its client, and the thread goes on."""
    try:
        yield
    except HermesError as error:
        host.emit("error", sid, {"message": error.one_line()})
    except concurrent.futures.CancelledError:
        _log.info("a turn was put down", extra={"action": "rpc_turn"})  # it goes on where the conversation is opened
    except Exception as error:  # noqa: BLE001 - boundary: a turn's thread
        _log.exception("a turn failed", extra={"action": "rpc_turn"})
        host.emit("error", sid, {"message": f"something went wrong inside Hermes ({type(error).__name__})"})


def _one(host: RpcServices, sid: str, session: Session, content: Any, still: Still) -> None:
    agent = _agent(session)
    if session.get("_turn_cancel_requested"):
        host.emit("message.complete", sid, {"text": "", "usage": session_view.usage(session), "status": "interrupted"})
        return
    with session["history_lock"]:
        version, before = session["history_version"], list(session["history"])
    seen = ""
    if content is _LOST:
        seen = _seen(host, sid, session, still)
    elif session.get("place") is None:
        host.emit("message.start", sid)
    result = _run(host, sid, session, agent, content, before, RepeatedStep(seen))
    warning = _keep(session, result, version)
    host.sync(sid, session, clear_pending_title=False, restart_slash_worker=True)
    status, text = _ending(result)
    shown = {"text": text, "usage": session_view.usage(session), "status": status}
    if isinstance(result, dict) and result.get("last_reasoning"):
        shown["reasoning"] = str(result["last_reasoning"])
    if warning:
        shown["warning"] = warning
    rendered = host.rendered(text, session["cols"])
    if rendered is not None:
        shown["rendered"] = rendered
    session["inflight_turn"] = None
    host.emit("message.complete", sid, shown)
    if status == "complete":
        _give_title(host, sid, session)
    if isinstance(result, dict) and result.get("pending_steer"):
        _ask_next(session, str(result["pending_steer"]))


def _seen(host: RpcServices, sid: str, session: Session, still: Still) -> str:
    """The lost turn is ours from now on: what was told of its last step. Whoever heard nothing of it hears it begin."""
    with still(sid, session) as following:
        seen = None if following is None else following.let_go()
        if seen is None:
            host.emit("message.start", sid, {"taken_up": True})
        elif session["inflight_turn"] is not None:
            session["inflight_turn"]["assistant"] = seen
    return seen or ""


def _ask_next(session: Session, late: str) -> None:
    """Words that came too late for the model: the next prompt, or the beginning of the one that waits."""
    with session["history_lock"]:
        waiting = session["queued_prompt"]
        if waiting is None:
            session["queued_prompt"] = {"text": late, "transport": None}
        elif isinstance(waiting["text"], str):
            waiting["text"] = f"{late}\n\n{waiting['text']}"
        else:
            waiting["text"] = [{"type": "text", "text": late}, *waiting["text"]]


def _agent(session: Session) -> Any:
    """A session that says nothing of being ready has its agent already."""
    ready = session.get("agent_ready")
    if ready is not None and not ready.wait(_AGENT_SECONDS):
        raise HermesError(f"the agent was not ready after {_AGENT_SECONDS:.0f} s", hint="Send it again.")
    if session.get("agent_error"):
        raise HermesError(str(session["agent_error"]))
    return session["agent"]


def _run(
    host: RpcServices, sid: str, session: Session, agent: Any, content: Any, before: list[Any], anew: RepeatedStep
) -> Any:
    renderer = host.stream_renderer(session["cols"])

    def heard(given: str | None) -> None:
        if not (piece := anew.unseen(given or "")):
            return
        shown = {"text": piece}
        rendered = None if renderer is None else renderer.feed(piece)
        with host.telling:
            if (turn := session.get("inflight_turn")) is not None:
                turn["assistant"] += piece
            host.emit("message.delta", sid, shown if rendered is None else {**shown, "rendered": rendered})

    options: dict[str, Any] = {"stream_callback": heard}
    place: LiveSession | None = session.get("place")
    if place is None:
        options["conversation_history"] = before
        if "task_id" in inspect.signature(agent.run_conversation).parameters:
            options["task_id"] = session["session_key"]
        return agent.run_conversation(content, **options)

    def step_ended(text: str, already_streamed: bool = True) -> None:
        anew.step_ended()
        host.emit("message.interim", sid, {"text": text, "already_streamed": already_streamed})

    agent.interim_assistant_callback = step_ended
    if before:  # given to session.create; the store has nothing yet
        options["conversation_history"] = before
    request = place.turn_request(started=lambda: host.emit("message.start", sid))
    return _in_turn(host, sid, session, agent, content, {**options, "request": request})


def _in_turn(host: RpcServices, sid: str, session: Session, agent: Any, content: Any, options: dict[str, Any]) -> Any:
    """Another window may have begun a turn in this very moment: then ours is the next."""
    if content is _LOST:
        agent.stream_delta_callback = options["stream_callback"]
        # Somebody else may have been quicker, or nothing of it is left to be answered.
        return sync_loop.run(agent.resume_unfinished(request=options["request"])) or {"final_response": None}
    told = False
    while True:
        try:
            return agent.run_conversation(content, task_id=session["session_key"], **options)
        except ConversationBusy:
            if session["_turn_cancel_requested"]:
                return {"final_response": None, "interrupted": True}
        if not told:
            told = True
            host.emit("status.update", sid, {"kind": "lifecycle", "text": _NEXT})
        time.sleep(_LOOK_SECONDS)


def _keep(session: Session, result: Any, version: int) -> str:
    """What was said is the session's history, unless that changed meanwhile; then a warning."""
    if not isinstance(result, dict) or result.get("messages") is None:
        return ""
    with session["history_lock"]:
        if session.get("place") is not None:
            session["history"] = []  # it is stored
            session["history_version"] += 1
            return ""
        if session["history_version"] != version:
            _log.warning("history changed during a turn", extra={"action": "rpc_history"})
            return _NOT_SAVED
        session["history"] = list(result["messages"])
        session["history_version"] += 1
        return ""


def _ending(result: Any) -> tuple[str, str]:
    if not isinstance(result, dict):
        return "complete", str(result)
    text, error = str(result.get("final_response") or ""), result.get("error")
    status = "interrupted" if result.get("interrupted") else "error" if error else "complete"
    if not text and error and (result.get("failed") or result.get("partial")):
        text = f"Error: {error}"
    return status, text


def _give_title(host: RpcServices, sid: str, session: Session) -> None:
    """The title that was wished for before there was a row to give it to."""
    title, db = session.get("pending_title"), host.get_db()
    if not title or db is None:
        return
    try:
        if db.set_session_title(session["session_key"], title):
            session["pending_title"] = None
            host.emit("session.title", sid, {"session_id": session["session_key"], "title": title})
    except ValueError:  # taken, or no title at all: the automatic one takes over
        session["pending_title"] = None
    except Exception as error:  # noqa: BLE001 - boundary: the title waits for the next turn, whatever it was
        _log.warning("the title is kept for later (%s)", type(error).__name__, extra={"action": "rpc_title"})


Still = Callable[[str, "Session"], AbstractContextManager["Follower | None"]]
"""`Looker.still`."""
Build = Callable[[str, "Session"], None]
"""Starts the making of a session's agent, where it has none."""


def other(session: Session) -> Literal["", "elsewhere", "lost"]:
    """Whether a turn is open in the conversation of a session that runs none, and whether somebody works on it."""
    place: LiveSession | None = session.get("place")
    if place is None or not place.has_open_turn():
        return ""
    return "lost" if place.has_lost_turn() else "elsewhere"


class RepeatedStep:
    """The words of a step that was cut off and is said anew: what was seen of it is not told again."""

    def __init__(self, seen: str = "") -> None:
        self._seen, self._said = seen, ""

    def unseen(self, piece: str) -> str:
        """What of it is to be told. Nothing when it is said in other words: the whole answer takes their place."""
        before, self._said = len(self._said), self._said + piece
        return self._said[max(before, len(self._seen)) :] if self._said.startswith(self._seen) else ""

    def step_ended(self) -> None:
        self._seen = self._said = ""
