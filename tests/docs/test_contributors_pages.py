"""The contributors' pages name modules that exist, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"gateway.md": "gateway", "agent.md": "hermes_agent", "store.md": "hermes_state"}


def test_every_page_is_linked_from_another() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    leads = {
        (page.parent / link).resolve()
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)", page.read_text(encoding="utf-8"))
        if (page.parent / link).resolve() != page
    }
    alone = {page.relative_to(ROOT).as_posix() for page in pages if page.name != "README.md" and page not in leads}
    assert alone <= {"SECURITY.md"}  # which forges find by its name


@pytest.mark.parametrize("page", PAGES)
def test_every_module_it_names_is_there(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "contributors" / page).read_text(encoding="utf-8"))
    room = ROOT / "src" / PAGES[page]
    missing = [name for name in named if not (room / name).exists() and not (ROOT / "src" / name).exists()]
    assert named and not missing
