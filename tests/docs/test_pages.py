"""Every page leads somewhere, can be found from the README, and names commands, verbs and tests that exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools import commands_page

from hermes_cli.commands import COMMANDS
from hermes_cli.framework.parser import parser_of
from hermes_config.version import VERSION

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
HISTORY = ROOT / "CHANGELOG.md"  # it may name what is gone
PAGES = sorted({*ROOT.glob("*.md"), ROOT / "tests" / "README.md", *(ROOT / "docs").rglob("*.md")} - {HISTORY})
PICTURES = sorted((ROOT / "docs").rglob("*.svg"))
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
_CALL = re.compile(r"(?:^|`|exec hermes )(?:[A-Z_]+=\S+ )?hermes ([a-z][^`#\n|;&)…]*)", re.MULTILINE)
_VERB = re.compile(r"(?:^|`|&& )make(?: -s)? ([a-z]+)", re.MULTILINE)
_VARIABLE = re.compile(r"^[A-Z_]+=(?:\$\([^)]*\)|\S+) ")
_INDENTED = re.compile(r"^    ", re.MULTILINE)
_TEST = re.compile(r"\b(tests/[\w/]+\.py)(?:::([\w:]+\w))?")
_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return _INDENTED.sub("", page.read_text(encoding="utf-8"))


# -- links ------------------------------------------------------------------------------------------------------------


@_each_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for link, heading in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve() if link else page
        if not target.exists() or (heading and heading not in anchors(target)):
            lost.append(f"{link}#{heading}")
    assert lost == []


def anchors(page: Path) -> set[str]:
    """The headings of a page, as a forge spells them in addresses."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_and_picture_can_be_found_from_the_readme() -> None:
    found, new = {README}, [README]
    while new:
        page = new.pop()
        for link, _ in _LINK.findall(page.read_text(encoding="utf-8")) if page.suffix == ".md" else ():
            target = (page.parent / link).resolve() if link else page
            if target not in found and target.is_file():
                found.add(target)
                new.append(target)
    assert [str(page.relative_to(ROOT)) for page in {*PAGES, *PICTURES} - found] == []


@pytest.mark.parametrize("folder", ["users", "operators", "contributors", "decisions"])
def test_the_list_of_a_folder_has_every_page_of_it(folder: str) -> None:
    here = ROOT / "docs" / folder
    listed = {link for link, _ in _LINK.findall((here / "README.md").read_text(encoding="utf-8"))}
    assert {page.name for page in here.glob("*.md")} - {"README.md"} - listed == set()


# -- commands ---------------------------------------------------------------------------------------------------------


@_each_page
def test_every_command_and_flag_it_names_is_there(page: Path) -> None:
    known = dict(section.split("`\n", 1) for section in commands_page.page().split("# `")[1:])
    calls = [
        found.strip().partition("  ")[0] for found in _CALL.findall(text_of(page))
    ]  # behind two blanks: what it does
    assert [call for call in calls if not _exists(call, known)] == []


def _exists(call: str, known: dict[str, str]) -> bool:
    """Whether the call begins with a command (and its verb, if it has verbs), and has only flags of it."""
    words = call.removesuffix(" --help").split()
    if words[0] not in COMMANDS:
        return False
    name = f"hermes {words[0]}"
    if len(words) > 1 and f"{name} {words[1]}" in known:
        name = f"{name} {words[1]}"
    elif len(words) > 1 and words[1][:1].isalpha() and any(place.startswith(f"{name} ") for place in known):
        return False
    return all(f"`{word}" in known[name] for word in words[1:] if word.startswith("-") and word != "-")


@_each_page
def test_every_verb_of_make_it_names_is_there(page: Path) -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(_VERB.findall(text_of(page))) - verbs == set()


@_each_page
def test_no_page_installs_a_package_of_that_name_from_an_index(page: Path) -> None:
    """Nobody has published one there, so it would fail, or be somebody else's one day."""
    assert not re.findall(r"(?<!un)install [^\n`]*(?<![/\w])hermes-gateway(?!_)", text_of(page))


def test_every_command_line_of_the_readme_is_one_that_hermes_takes() -> None:
    lines = list(command_lines(README))
    assert len(lines) > 6
    for words in lines:
        name, *rest = words if words and not words[0].startswith("-") else ["chat", *words]
        parsed = parser_of(COMMANDS[name], rest).parse_args(rest)  # raises what a person would be told
        assert "run" in parsed, words


def command_lines(page: Path) -> Iterator[list[str]]:
    """The arguments of each `hermes …` in a block or between backticks."""
    source = page.read_text(encoding="utf-8")
    for line in (*re.findall(r"^    (.*)$", source, re.MULTILINE), *re.findall(r"`([^`\n]+)`", source)):
        words = shlex.split(_VARIABLE.sub("", line), comments=True)
        if len(words) > 1 and words[0].rpartition("/")[2] == "hermes":
            yield words[1:]


# -- the README -------------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_speaks_of_this_version() -> None:
    source = README.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 150
    assert set(re.findall(r"hermes_gateway-([\d.]+)-py3", source)) == {VERSION.partition(".dev")[0]}
    assert not re.search(r"\b(house|mind|switchboard|doors?)\b", source)


# -- tests and pictures -----------------------------------------------------------------------------------------------


@_each_page
def test_every_test_it_names_is_there(page: Path) -> None:
    missing = []
    for file, name in _TEST.findall(page.read_text(encoding="utf-8")):
        there = (ROOT / file).is_file()
        if not there or (name and name not in functions(ROOT / file)):
            missing.append(f"{file}::{name}")
    assert missing == []


def functions(file: Path) -> set[str]:
    """The names of the tests in a file, with their classes, as pytest takes them."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = {f"{node.name}::": node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        prefix + node.name
        for prefix, body in {"": tree.body, **classes}.items()
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_promise_has_limits_and_a_test() -> None:
    promises = GUARANTEES.read_text(encoding="utf-8").partition("\n## Ways to lose")[0].split("\n### ")[1:]
    assert len(promises) >= 10
    for promise in promises:
        assert "\n*Limits.* " in promise and any(name for _, name in _TEST.findall(promise)), promise.partition("\n")[0]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_and_whole_and_loads_nothing(picture: Path) -> None:
    source = picture.read_text(encoding="utf-8")
    ElementTree.fromstring(source)
    assert len(source.encode()) < 200_000
    assert not re.search(r"<script|<image|<foreignObject|\bon\w+=|@import|(?:href|src)=\"(?!#)|url\((?!#)", source)
