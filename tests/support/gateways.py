"""A whole gateway in this process: real store, real lanes, turns and deliverer, a pretend platform, a scripted model.

    async with PretendGateway(db, home, model) as gateway:
        await gateway.chat.say("hello")
        assert (await gateway.chat.heard(1))[0].text == "Hi."

Leaving the block ends the gateway as SIGTERM does. Without a model it uses the demo model at full speed; a mapping is
what config.yaml says about the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import yaml

from gateway import run
from gateway.config import load_gateway_config
from gateway.services import Parts, services_of
from hermes_config import config as configuration
from hermes_testing.memory_platform import PretendAdapter
from hermes_testing.scenario import merged

if TYPE_CHECKING:
    from gateway.chat.commands import ChatCommands
    from gateway.services import Services
    from hermes_state import SessionDB
    from hermes_state.turns.inbox import InboxRow
    from hermes_testing.scripted.model import ScriptedModel

MakeCommands = Callable[["Services", "run.GatewayRunner"], "ChatCommands"]
OWNER = "42"


def settings(model: ScriptedModel | Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    """What config.yaml says: user 42 owns the place, 7 and 8 may write; nothing goes on beside the turns."""
    chosen: Any = {"provider": "demo", "default": "demo"}
    if isinstance(model, Mapping):
        chosen = dict(model)
    elif model is not None:
        chosen = model.settings()
    base: dict[str, Any] = {
        "model": chosen, "demo": {"tokens_per_second": 0}, "auto_title": False,
        "gateway": {"owners": [f"telegram:{OWNER}"], "drain_seconds": 5},
        "platforms": {"telegram": {"enabled": True, "token": "1:pretend", "allowed_users": ["7", "8"]}},
    }  # fmt: skip
    return merged(base, more)


class PretendGateway:
    """One gateway on a home, with one chat platform."""

    def __init__(
        self,
        db: SessionDB,
        home: Path,
        model: ScriptedModel | Mapping[str, Any] | None = None,
        *,
        commands: MakeCommands | None = None,
        adapter: PretendAdapter | None = None,
        **config: Any,
    ) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "config.yaml").write_text(yaml.safe_dump(settings(model, **config)), encoding="utf-8")
        self._db, self._home, self._commands = db, home, commands
        self.chat = adapter or PretendAdapter()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self, *, away: float = 0.0) -> None:
        config = configuration.load(self._home)
        services = services_of(config, load_gateway_config(config), self._db)
        adapters = {self.chat.platform: self.chat}
        if self._commands is None:
            self.runner = run.GatewayRunner(services, adapters)
        else:
            self.runner = run.GatewayRunner(services, adapters, commands=self._commands)
        await self.runner.start(away=away)
        await self.parts.connections.settled(5)

    @property
    def parts(self) -> Parts:
        return self.runner.parts

    @property
    def db(self) -> SessionDB:
        return self._db

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.runner.stop()

    # -- waiting -----------------------------------------------------------------------------------------

    async def until(self, seen: Callable[[], Any], *, seconds: float = 10.0) -> Any:
        """Look again and again until it is true."""
        async with asyncio.timeout(seconds):
            while not (found := seen()):  # noqa: ASYNC110 - what is looked at is rows, which ring no bell
                await asyncio.sleep(0.005)
        return found

    async def quiet(self, *, seconds: float = 10.0) -> None:
        """Until no lane has anything to do and all that is owed was delivered."""
        await self.until(
            lambda: not self.parts.lanes._tasks and not self._db.outbox.counts().keys() & {"pending", "sending"},
            seconds=seconds,
        )

    def outcomes(self) -> dict[str, str]:
        """What became of each message, by its id."""
        return {_name(row): row.state for row in self._db.inbox.list(limit=1_000)}


def _name(row: InboxRow) -> str:
    return f"{row.message_id}.{row.version}" if row.version else row.message_id
