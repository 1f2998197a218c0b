"""A gateway with its API, on a store of either engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.api.door import Door

from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel

Open = Callable[..., Door]


@pytest.fixture
def door(db: SessionDB, home: Path) -> Open:
    def make(model: ScriptedModel | None = None, /, **config: Any) -> Door:
        return Door(db, home, model, **config)

    return partial(make)
