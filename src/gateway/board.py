"""What the parts of the gateway share, made once by the runner and handed down. Nothing in it reaches up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import GatewayConfig
    from gateway.hooks import HookRegistry
    from gateway.metrics import Metrics
    from gateway.policy import PolicyKeeper
    from gateway.session import SessionStore
    from hermes_config.config import Config
    from hermes_state import SessionDB


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    db: SessionDB
    config: Config
    """The home's configuration as it was read at start."""
    settings: GatewayConfig
    """The gateway's part of it."""
    store: SessionStore
    policy: PolicyKeeper
    hooks: HookRegistry
    metrics: Metrics
    holder: str
    """This process in leases and as a sender (`hermes_agent.process_identity.new_holder`)."""

    @property
    def home(self) -> Path:
        return self.config.home
