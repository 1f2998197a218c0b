"""What tests of the gateway can ask for: a services with real parts on a store of either engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.access.policy import PolicyKeeper
from gateway.config import GatewayConfig
from gateway.hooks import HookRegistry
from gateway.metrics import Metrics
from gateway.services import Services
from gateway.session import SessionStore
from hermes_agent import process_identity
from hermes_config import config
from hermes_state.session_db import SessionDB


@pytest.fixture
def services(db: SessionDB, home: Path) -> Services:
    settings = GatewayConfig()
    return Services(
        db=db,
        config=config.load(),
        settings=settings,
        store=SessionStore(home / "sessions", settings, db=db),
        policy=PolicyKeeper(db, home),
        hooks=HookRegistry(home),
        metrics=Metrics(),
        holder=process_identity.new_holder(),
    )
