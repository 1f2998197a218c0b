"""The parts of a gateway (`Parts`), the objects that they share (`Services`), and their wiring (`assemble`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.access.pairing import Pairing
from gateway.access.policy import PolicyKeeper
from gateway.config import GatewayConfig, Platform, load_gateway_config
from gateway.hooks import HookRegistry, enabled_hooks
from gateway.inbound.intake import Intake
from gateway.inbound.lanes import Lanes
from gateway.metrics import Metrics
from gateway.outbound.deliverer import Deliverer
from gateway.platforms.connections import Connections
from gateway.platforms.context import PlatformContext, WebhookRoutes
from gateway.session import SessionStore
from gateway.turns.agents import Agents
from gateway.turns.runner import TurnRunner
from hermes_agent import process_identity
from hermes_config import config as configuration
from hermes_config.errors import ConfigError
from hermes_state import SessionDB

if TYPE_CHECKING:
    from gateway.chat.commands import ChatCommands
    from gateway.platforms.base import BasePlatformAdapter
    from gateway.run import GatewayRunner
    from hermes_agent.approvals.types import Approver
    from hermes_agent.tools.base import Ask
    from hermes_config.config import Config


_log = logging.getLogger("hermes.gateway")
_CLOSE_SECONDS = 2.0


@dataclass(slots=True, kw_only=True)
class Services:
    db: SessionDB
    config: Config
    """The home's configuration, as of the last `refresh`."""
    settings: GatewayConfig
    """The gateway's part of it. One object for all parts; settings that need a restart stay as they were."""
    store: SessionStore
    policy: PolicyKeeper
    hooks: HookRegistry
    metrics: Metrics
    holder: str
    """This process in leases and as a sender (`hermes_agent.process_identity.new_holder`)."""

    has_jobs: bool = field(init=False, default=False)
    """Whether there are jobs, which chats may have to be told of; without any, turns do not look for them."""
    seen: Config | None = field(init=False, default=None)
    """The configuration of the files at the last check."""
    _latest: Config | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        with suppress(ConfigError):  # then `refresh` uses the first valid one
            self.seen = configuration.load_or_last_good(self.home)[0]

    @property
    def home(self) -> Path:
        return self.config.home

    def latest(self) -> Config:
        """The configuration in the files, or the last good one. One look counts for one iteration of the event loop."""
        if self._latest is None:
            self._latest = configuration.load_or_last_good(self.home)[0]
            asyncio.get_running_loop().call_soon(self._forget_look)
        return self._latest

    def _forget_look(self) -> None:
        self._latest = None

    def refresh(self) -> None:
        """Apply a changed configuration before a turn begins. An invalid one changes nothing."""
        now = self.latest()
        if now is self.seen:
            return
        self.seen = now
        try:
            self.settings.take_over(load_gateway_config(now))
        except ConfigError as error:
            _log.warning("the old settings stay in force: %s", error.one_line(), extra={"action": "config_kept"})
            return
        self.config = now

    async def chat_moved(self, platform: str, old_chat: str, new_chat: str) -> None:
        """A chat has a new id: its conversations go along, and its answers stay held if they were."""

        def take_along() -> int:
            held = self.db.held_answers
            if held.is_held(self.settings.delivery.hold, platform, old_chat):
                held.hold_chat(platform, new_chat, True, by=None)
            return self.store.take_along(platform, old_chat, new_chat)

        if count := await asyncio.to_thread(take_along):
            _log.info("%d conversations follow a chat to its new id", count, extra={"action": "chat_moved"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that runs in a gateway."""

    services: Services
    agents: Agents
    deliverer: Deliverer
    lanes: Lanes
    intake: Intake
    connections: Connections
    webhooks: WebhookRoutes

    def model_line(self) -> str:
        """The line for a person about the model of a new conversation, or why there is none."""
        from hermes_agent.models import providers

        config, _ = configuration.load_or_last_good(self.services.home)
        try:
            endpoint = providers.primary(config)
        except ConfigError as error:
            return error.in_chat()
        return f"Model: {endpoint.model} ({endpoint.provider}), {endpoint.context_length:,} tokens of context."

    async def close(self) -> None:
        """Wait a moment for background work of the agents, and close connections."""
        from hermes_agent.models import http

        agents = [entry[0] for entry in self.agents.entries.values()]
        if agents:
            closing = [asyncio.ensure_future(agent.aclose()) for agent in agents]
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        self.agents.clear()
        await http.close_clients()
        await asyncio.to_thread(self.services.store.close)


def services_of(config: Config, settings: GatewayConfig, db: SessionDB) -> Services:
    """Make the objects that the parts share."""
    hooks = HookRegistry(config.home, db.limits, enabled=enabled_hooks(config))
    hooks.discover_and_load()
    return Services(
        db=db, config=config, settings=settings,
        store=SessionStore(settings.sessions_dir, settings, db.processes.runs_on_route, db=db),
        policy=PolicyKeeper(db, config.home), hooks=hooks, metrics=Metrics(), holder=process_identity.new_holder(),
    )  # fmt: skip


def assemble(
    services: Services,
    adapters: Mapping[Platform, BasePlatformAdapter],
    *,
    after: GatewayRunner,
    commands: ChatCommands,
    approver: Approver,
    ask: Ask,
) -> Parts:
    """Make and connect a gateway's parts; nothing runs yet."""
    agents = Agents(services, approver=approver, ask=ask)
    deliverer = Deliverer(services, adapters)
    turns = TurnRunner(services, agents, deliverer, adapters=adapters, after=after)
    lanes = Lanes(services, turns, commands, deliverer)
    commands.serve(lanes, agents)
    intake = Intake(services, lanes, pairing=Pairing(services.db))
    webhooks = WebhookRoutes()
    for adapter in adapters.values():
        adapter.set_message_handler(partial(intake.receive, adapter=adapter))
        adapter.context = PlatformContext(
            services.db, adapter, webhooks, deliverer.reachable_again, services.chat_moved
        )
    return Parts(
        services=services, agents=agents, deliverer=deliverer, lanes=lanes, intake=intake, webhooks=webhooks,
        connections=Connections(adapters, connected=deliverer.back),
    )  # fmt: skip
