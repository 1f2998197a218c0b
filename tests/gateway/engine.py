"""What tests of the engine share: the fewest commands that need a lane, and a gateway on a fresh home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.gateways import PretendGateway

from gateway.inbound.lanes import Kind, Lanes
from gateway.inbound.stored_message import event_of, source_of
from gateway.run import GatewayRunner
from gateway.services import Services
from gateway.turns.agents import Agents
from gateway.turns.running_turn import RunningTurn, Watcher
from hermes_state import SessionDB
from hermes_state.ids import SessionKey
from hermes_state.storage.writer import queued
from hermes_state.turns.inbox import InboxRow
from hermes_state.turns.outbox import NewOutboxItem
from hermes_testing.scripted.model import ScriptedModel

ROUTE = SessionKey("agent:main:telegram:dm:42")
QUEUE = {"display": {"busy_input_mode": "queue"}}
STEER = {"display": {"busy_input_mode": "steer"}}
_NOW = ("new", "stop", "status")


class FewCommands:
    """/new /stop /catchup /again, each through the doors that all commands use."""

    def __init__(self, services: Services, runner: GatewayRunner) -> None:
        self._db, self._runner = services.db, runner
        self.ran: list[str] = []

    def serve(self, lanes: Lanes, agents: Agents) -> None:
        self._lanes, self._agents = lanes, agents

    def kind(self, row: InboxRow) -> Kind:
        event = event_of(row)
        if event.answer is not None:
            return "now"
        name = event.get_command()
        return "turn" if name is None else "now" if name in _NOW else "command"

    async def run(self, row: InboxRow, watcher: Watcher | None) -> None:
        if not await queued(self._db.engine, lambda conn: self._db.inbox.take_command_in(conn, row.id)):
            return
        said = await self._said(row)
        reply = NewOutboxItem(
            dedup_key=f"command:{row.id}", platform=row.platform, chat_id=row.chat_id, payload={"text": said}
        )
        await queued(self._db.engine, lambda conn: self._db.inbox.end_command_in(conn, row.id, "answered", reply=reply))
        self._runner.parts.deliverer.wake()

    async def _said(self, row: InboxRow) -> str:
        assert row.route is not None
        event, name = event_of(row), event_of(row).get_command()
        self.ran.append(event.text)
        if name == "new":
            await self._lanes.drop(row.route, before=row.id, reason="/new")
            return await self._runner._handle_reset_command(event)
        if name == "stop":
            dropped = await self._lanes.drop(row.route, before=row.id, reason="stopped by the person")
            stopped = await self._lanes.stop(row.route)
            return f"stopped {stopped}, dropped {dropped}"
        if name == "catchup":
            return f"catching up on {await self._lanes.catch_up(row.route)}"
        if name == "again":
            running = RunningTurn(row.route, source_of(row), row.person_id, content="once more")
            await self._lanes.run_turn(running)
        return f"done {name}"


Start = Callable[..., PretendGateway]


def starter(db: SessionDB, home: Path) -> Start:
    def start(model: ScriptedModel | dict[str, Any] | None = None, **more: Any) -> PretendGateway:
        return PretendGateway(db, home, model, **{"commands": FewCommands, **more})

    return start


def answers(here: PretendGateway) -> list[str]:
    """What the model said, without what the gateway said itself."""
    notices = {
        item.payload["text"] for item in here.db.outbox.list(limit=1_000) if item.payload.get("kind") == "notice"
    }
    return [text for text in here.chat.chat() if text not in notices]


def told(here: PretendGateway, what: str) -> list[str]:
    found = [item for item in here.db.outbox.list(limit=1_000) if item.dedup_key.startswith(f"notice:{what}:")]
    return [item.payload["text"] for item in reversed(found)]


def user_texts(db: SessionDB) -> list[str]:
    (session,) = db.list_sessions_rich()
    return [m["content"] for m in db.get_messages(session["id"]) if m["role"] == "user"]
