"""Regular expressions of the whole code base work on every Python that we support."""

from __future__ import annotations

import ast
import re._constants as constants
import re._parser as parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "src"
NEWER = {constants.POSSESSIVE_REPEAT, constants.ATOMIC_GROUP}


def operators(tree: object) -> set[object]:
    """What a pattern is made of; plain numbers in it are characters."""
    if isinstance(tree, list | tuple | parser.SubPattern):
        return {one for part in tree for one in operators(part)}
    return {tree} if isinstance(tree, type(constants.ATOMIC_GROUP)) else set()


def patterns(file: Path) -> list[str]:
    """What is given to a function of `re` as it stands."""
    calls = (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call) and node.args)
    return [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    ]


def test_no_pattern_needs_a_newer_python() -> None:
    """Before 3.11.5, `(?:a|b)*+` and its like match too little or too much: Debian 12 has 3.11.2."""
    found = [(file, pattern) for file in sorted(SOURCE.rglob("*.py")) for pattern in patterns(file)]
    assert len(found) > 200
    assert [one for one in found if NEWER & operators(parser.parse(one[1]))] == []
    assert NEWER & operators(parser.parse("(?:a|b)*+"))
