"""The owner at this machine as a caller of the MCP server: `hermes mcp serve`.

Messages go the way of a prompt in the window: `prompt.submit` of this process's RPC server stores them, and runs their
turn here or hands them to the gateway that serves the conversation. So it works with and without a gateway. A turn that
a dead process left is recovered when its task is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.access import authorisation
from gateway.access.policy import PolicyKeeper
from gateway.mcp_server.asks import CANCELLED, AskRefused
from hermes_agent import process_identity
from hermes_config.recent import Recent
from hermes_state.errors import IdTaken, StoreUnavailable
from hermes_state.ids import LOCAL_OWNER, ConversationId
from hermes_state.turns.inbox import BESIDE, LOCAL, OUTCOMES, InboxRow
from tui_gateway import server
from tui_gateway.session import attach

if TYPE_CHECKING:
    from gateway.access.authorisation import Policy
    from hermes_agent.approvals.types import ApprovalQuestion, Choice
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId
    from tui_gateway.wire.frames import Frame

_SOURCE = "mcp"
_ANSWER_SECONDS = 60.0
_FOLLOW_SECONDS = 2.0
_FOLLOWED = 1_000
_numbers = itertools.count(1)


class _RpcClient:
    """A client of this process's RPC server that waits for answers and shows no events."""

    def __init__(self) -> None:
        self._answers: dict[int, Frame] = {}
        self._arrived = threading.Condition()

    def write(self, frame: Frame) -> bool:
        if (number := frame.get("id")) is not None:
            with self._arrived:
                self._answers[number] = frame
                self._arrived.notify_all()
        return True

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result. Raises `AskRefused` with the server's error."""
        number = next(_numbers)
        given = {name: value for name, value in params.items() if value is not None}
        server.serve({"jsonrpc": "2.0", "id": number, "method": method, "params": given}, self)
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, _ANSWER_SECONDS):
                raise AskRefused(f"{method} was not answered within {_ANSWER_SECONDS:.0f} s", hint="Try again.")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise AskRefused(str(answer["error"].get("message")))
        result: dict[str, Any] = answer["result"]
        return result

    def __enter__(self) -> _RpcClient:
        return self

    def __exit__(self, *_: object) -> None:
        server._idle_sessions.left(self)  # a session without a client is closed once its work is done


class LocalCaller:
    """Calls in the owner's name. Everything that reads or writes runs in a thread."""

    def __init__(self) -> None:
        db = server._get_db()
        if db is None:
            raise StoreUnavailable(f"the store cannot be opened: {server._db_error}")
        self.db: SessionDB = db
        self.who = authorisation.TERMINAL
        self._policy = PolicyKeeper(db)
        self._followed: Recent[int, float] = Recent(_FOLLOWED)

    async def policy(self) -> Policy:
        return await self._policy.fresh()

    async def submit(self, message: str, conversation: str | None, key: str | None) -> InboxRow:
        return await asyncio.to_thread(self._submit, message, conversation, key)

    def _submit(self, message: str, conversation: str | None, key: str | None) -> InboxRow:
        own = None if key is None else f"mcp-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        if own is not None:
            conversation = conversation or self._begun(own)
            if (known := self._known(conversation, own)) is not None:
                return _same(known, message)
        with _RpcClient() as client:
            if conversation is None:
                opened = client.call("session.create", source=_SOURCE)
            else:
                opened = client.call("session.resume", session_id=conversation, source=_SOURCE, limit=1)
            sent = client.call("prompt.submit", session_id=opened["session_id"], text=message, program=True, key=own)
        row = self.db.inbox.get(sent["row"])
        assert row is not None, "it was stored a moment ago"
        self._followed[row.id] = time.monotonic()
        return row if own is None else _same(row, message)  # another call with this key may have come first

    def _begun(self, own: str) -> str:
        """The conversation of a call that names none: the same for the same key."""
        session_id = own.replace("-", "_")
        if self.db.get_session(session_id) is None:
            with suppress(IdTaken):  # another call with this key opened it a moment ago
                self.db.ledger.open(source=_SOURCE, owner=LOCAL_OWNER, session_id=session_id)
        return session_id

    def _known(self, conversation: str, own: str) -> InboxRow | None:
        root = self.db.get_conversation_root(conversation)
        found = self.db.inbox.versions(platform=LOCAL, chat_id=root, message_id=f"{LOCAL}:{own}")
        chat = attach.served(self.db, self.db.get_compression_tip(conversation), self._policy)
        if not found and chat is not None:
            source = chat.source
            found = self.db.inbox.versions(
                platform=source.platform.value, chat_id=str(source.chat_id), message_id=f"{BESIDE}{own}"
            )
        return found[-1] if found else None

    def is_own(self, row: InboxRow) -> bool:
        """Whether the message was sent from a terminal of this home; anybody at one may read all of them."""
        return row.platform == LOCAL or row.message_id.startswith(BESIDE)

    async def follow(self, row: InboxRow) -> None:
        """Recover a message whose process died. A gateway recovers its own."""
        now = time.monotonic()
        if row.platform == LOCAL and now - self._followed.get(row.id, -_FOLLOW_SECONDS) >= _FOLLOW_SECONDS:
            self._followed[row.id] = now
            await asyncio.to_thread(self._recover, row)

    def _recover(self, row: InboxRow) -> None:
        if process_identity.at_work(self.db, ConversationId(row.chat_id)):
            return
        with _RpcClient() as client:
            opened = client.call("session.resume", session_id=row.chat_id, source=_SOURCE, limit=1)
            client.call("session.recover", session_id=opened["session_id"])

    async def cancel(self, row: InboxRow) -> None:
        if not await asyncio.to_thread(self._cancelled, row):
            await asyncio.to_thread(self._cancelled, row)  # a turn has taken it meanwhile

    def _cancelled(self, row: InboxRow) -> bool:
        """Cancel the message in its present state; False if it waited for a turn and has begun one meanwhile."""
        now = self.db.inbox.get(row.id)
        turn = None if now is None or now.turn_id is None else self.db.turns.get(now.turn_id)
        if now is None or now.state in OUTCOMES:
            return True
        if row.platform == LOCAL:
            with _RpcClient() as client:
                opened = client.call("session.resume", session_id=row.chat_id, source=_SOURCE, limit=1)
                client.call("session.interrupt", session_id=opened["session_id"], row=row.id)
        elif turn is None:
            return bool(self.db.inbox.finish([row.id], "dropped", reason=CANCELLED))
        elif turn.state == "waiting":
            self.db.turns.end_waiting(turn.id, reason=CANCELLED)
            self.db.approvals.withdraw(turn.reason or "", reason=CANCELLED)
        else:
            self.db.turns.ask_to_stop(turn.id, reason=CANCELLED)
        return True

    async def answer(self, question: ApprovalQuestion, choice: Choice, person: PersonId | None) -> None:
        await asyncio.to_thread(self.db.approvals.decide, question.id, choice, approver_id=person)

    def close(self) -> None:
        """Release running turns, which the next process recovers, and close the store."""
        server._close_all("mcp_shutdown")
        self.db.close()


def _same(row: InboxRow, message: str) -> InboxRow:
    if (row.payload or {}).get("text") != message:
        raise AskRefused("this key was used with another message")
    return row
