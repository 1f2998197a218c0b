"""The operators' pages lead somewhere, and name commands and flags that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import commands_page

from hermes_cli.commands import COMMANDS

OPERATORS = Path(__file__).parents[2] / "docs" / "operators"
PAGES = sorted(OPERATORS.glob("*.md"))
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_CALL = re.compile(r"(?:^|`|exec hermes )(?:[A-Z_]+=\S+ )?hermes ([a-z][^`#\n|;&)]*)", re.MULTILINE)
_INDENTED = re.compile(r"^    ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_on_the_list() -> None:
    listed = set(_LINK.findall((OPERATORS / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in PAGES} - {"README.md"} - listed == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_flag_it_names_is_there(page: Path) -> None:
    known = dict(section.split("`\n", 1) for section in commands_page.page().split("# `")[1:])
    assert [call for call in _calls(page) if not _exists(call, known)] == []


def _calls(page: Path) -> Iterator[str]:
    text = _INDENTED.sub("", page.read_text(encoding="utf-8"))
    yield from (found.strip() for found in _CALL.findall(text))


def _exists(call: str, known: dict[str, str]) -> bool:
    """Whether the call begins with a command (and its verb, if it has verbs), and has only flags of it."""
    words = call.split()
    if words[0] not in COMMANDS:
        return False
    name = f"hermes {words[0]}"
    if len(words) > 1 and f"{name} {words[1]}" in known:
        name = f"{name} {words[1]}"
    elif len(words) > 1 and words[1][:1].isalpha() and any(place.startswith(f"{name} ") for place in known):
        return False
    return all(f"`{word}" in known[name] for word in words[1:] if word.startswith("-"))
