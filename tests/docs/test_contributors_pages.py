"""The contributors' pages name modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"gateway.md": "gateway", "agent.md": "hermes_agent", "store.md": "hermes_state"}


@pytest.mark.parametrize("page", PAGES)
def test_every_module_it_names_is_there(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "contributors" / page).read_text(encoding="utf-8"))
    room = ROOT / "src" / PAGES[page]
    missing = [name for name in named if not (room / name).exists() and not (ROOT / "src" / name).exists()]
    assert named and not missing
