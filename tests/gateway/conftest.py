"""What tests of the gateway can ask for: a board with real parts on a store of either engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.board import Board
from gateway.config import GatewayConfig
from gateway.hooks import HookRegistry
from gateway.metrics import Metrics
from gateway.policy import PolicyKeeper
from gateway.session import SessionStore
from hermes_agent import process_identity
from hermes_config import config
from hermes_state.session_db import SessionDB


@pytest.fixture
def board(db: SessionDB, home: Path) -> Board:
    settings = GatewayConfig()
    return Board(
        db=db,
        config=config.load(),
        settings=settings,
        store=SessionStore(home / "sessions", settings, db=db),
        policy=PolicyKeeper(db, home),
        hooks=HookRegistry(home),
        metrics=Metrics(),
        holder=process_identity.new_holder(),
    )
