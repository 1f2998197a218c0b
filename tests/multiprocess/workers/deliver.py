"""Delivers what a store owes to a platform that is a file: one line of JSON for each message that stands there.

argv: the store's address, the file. Says `ready`, then `idle` whenever nothing is owed any more. Sends and edits take a
few milliseconds on both sides of the write, so that a kill falls before, into or after it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.access.policy import PolicyKeeper
from gateway.config import GatewayConfig, Platform, PlatformConfig
from gateway.hooks import HookRegistry
from gateway.metrics import Metrics
from gateway.outbound.deliverer import Deliverer
from gateway.platforms.base import BasePlatformAdapter, Outgoing, OutgoingFile, SendResult
from gateway.services import Services
from gateway.session import SessionStore
from hermes_agent import process_identity
from hermes_config import config
from hermes_state.session_db import SessionDB


class FilePlatform(BasePlatformAdapter):
    MAX_MESSAGE_LENGTH = 40
    supports_edit = True
    means = "edit"

    def __init__(self, file: Path) -> None:
        super().__init__(PlatformConfig(enabled=True), Platform.TELEGRAM)
        self._file = file

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return True

    async def disconnect(self) -> None:
        return None

    async def send(self, chat_id: str, message: Outgoing) -> SendResult:
        return await self._write({"send": f"m{random.getrandbits(48)}", "chat": chat_id, "text": message.text})

    def together(self, files: Sequence[OutgoingFile]) -> int:
        return 3

    async def send_file(self, chat_id: str, message: Outgoing) -> SendResult:
        return (await self.send_files(chat_id, [message]))[0]

    async def send_files(self, chat_id: str, messages: Sequence[Outgoing]) -> Sequence[SendResult]:
        names = [message.file.name if message.file else "" for message in messages]
        album = {"send": f"m{random.getrandbits(48)}", "chat": chat_id, "text": messages[0].text, "files": names}
        sent = await self._write(album)
        return [SendResult(success=True, message_id=f"{sent.message_id}/{name}") for name in names]

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, thread_id: str | None = None, finalize: bool = False
    ) -> SendResult:
        return await self._write({"edit": message_id, "chat": chat_id, "text": content})

    async def _write(self, line: dict[str, Any]) -> SendResult:
        await asyncio.sleep(random.uniform(0, 0.006))
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        await asyncio.sleep(random.uniform(0, 0.006))
        return SendResult(success=True, message_id=line.get("send") or line.get("edit"))


async def main(address: str, file: Path) -> None:
    db = SessionDB(address)
    home, settings = config.load().home, GatewayConfig()
    services = Services(
        db=db, config=config.load(), settings=settings, store=SessionStore(home / "sessions", settings, db=db),
        policy=PolicyKeeper(db, home), hooks=HookRegistry(home), metrics=Metrics(),
        holder=process_identity.new_holder(),
    )  # fmt: skip
    adapter = FilePlatform(file)
    deliverer = Deliverer(services, {adapter.platform: adapter}, poll_seconds=0.02)
    await deliverer.start()
    print("ready", flush=True)
    while True:
        await asyncio.sleep(0.02)
        if not db.outbox.counts().keys() & {"pending", "sending"}:
            print("idle", flush=True)


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
