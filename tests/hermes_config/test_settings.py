"""The table of settings is what the code reads: every key, every variable, and their defaults."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import settings_page

from gateway.config import load_gateway_config
from hermes_agent.compression.policy import window_for
from hermes_agent.models.demo import model as demo
from hermes_agent.models.provider_table import PROVIDERS
from hermes_config import config, settings
from hermes_config.settings_table import VARIABLES

SRC = Path(__file__).parents[2] / "src"
PAGE = Path(__file__).parents[2] / "docs" / "operators" / "config-reference.md"
Way = tuple[str, ...]

# Read by a helper that is given the whole tree and knows its section.
ELSEWHERE = {"max_turns": "agent.max_turns", "api_max_retries": "agent.api_max_retries"}
# Variables that are not settings: of the system, or told to children by us.
NOT_SETTINGS = re.compile(
    r"HERMES_(SESSION|UI_SESSION|CRON|MODEL_KEY|DESKTOP|TEST|PHONE)\w*|XDG_\w+|GIT_\w+|NO_COLOR|STATX_\w+|LC_\w+"
)


# Where a read can begin.
ROOTS = re.compile(r"\btree\b|\bsource\.|_source\.|ctx\.config|self\._config|config: Mapping")


class Reads(ast.NodeVisitor):
    """The keys of config.yaml that a function reads, as far as they are written down: `tree.get("a")`, what was taken
    from there by a name, `source.find("a")`, and helpers that are given a section and a name."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, *, agent: bool) -> None:
        self._agent, self._known = agent, dict[str, Way]()
        for one in (*function.args.args, *function.args.kwonlyargs):
            kind = "" if one.annotation is None else ast.unparse(one.annotation)
            if one.arg == "tree" or (one.arg == "config" and kind.startswith("Mapping")):
                self._known[one.arg] = ()
        self.found: set[Way] = set()
        for _ in range(2):
            for node in ast.walk(function):
                self._learn(node)
        for node in ast.walk(function):
            if isinstance(node, ast.Call | ast.Subscript) and (way := self._way(node)):
                self.found.add(way)

    def _learn(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
            return
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and (way := self._way(node.value)) is not None:
            self._known[target.id] = way

    def _way(self, node: ast.expr) -> Way | None:
        if isinstance(node, ast.Name):
            return self._known.get(node.id)
        if isinstance(node, ast.Attribute):
            root = node.attr == "tree" or (self._agent and ast.unparse(node) in ("ctx.config", "self._config"))
            return () if root else None
        if isinstance(node, ast.Subscript):
            return self._below(node.value, node.slice)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            return next((way for part in parts if (way := self._way(part)) is not None), None)
        return self._called(node) if isinstance(node, ast.Call) else None

    def _called(self, node: ast.Call) -> Way | None:
        if isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in ("get", "at") and (way := self._below(node.func.value, node.args[0])) is not None:
                return way
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if ast.unparse(node.func.value) in ("source", "self._source") and names:
                if node.func.attr == "elsewhere":
                    return tuple(names)
                if node.func.attr in ("find", "flag", "whole", "names", "all"):
                    return (names[0],)
        for at, given in enumerate(() if ast.unparse(node.func) == "hasattr" else node.args):
            if self._way(given) is not None:
                return self._below(given, node.args[at + 1]) if at + 1 < len(node.args) else self._way(given)
        return None

    def _below(self, value: ast.expr, name: ast.expr) -> Way | None:
        way = self._way(value)
        if way is None or not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        return (*way, name.value)


def keys_read() -> Iterator[tuple[str, str]]:
    for file in sorted(SRC.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "hermes_testing" not in file.parts and ROOTS.search(text):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ROOTS.search(ast.unparse(node)):
                    found = Reads(node, agent="hermes_agent" in file.parts).found
                    yield from ((".".join(way), f"{file.name}:{node.name}") for way in found)


def test_every_key_that_the_code_reads_is_in_the_table() -> None:
    read = list(keys_read())
    assert {"compression.threshold", "display.skin", "approvals.timeout", "timezone"} <= {key for key, _ in read}
    unknown = [(key, where) for key, where in read if not settings.is_known(ELSEWHERE.get(key, key))]
    assert not unknown, "a setting without a row in hermes_config/settings_table.py"


def test_a_key_that_is_not_in_the_table_would_be_found() -> None:
    text = (
        "def f(tree):\n    part = tree.get('display')\n    return _mapping(part).get('colour') or tree['new'].get('x')"
    )
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    found = {".".join(way) for way in Reads(function, agent=False).found}
    assert {key for key in found if not settings.is_known(key)} == {"display.colour", "new", "new.x"}


def test_every_row_is_read_somewhere() -> None:
    words = set(re.findall(r"\w+", "".join(file.read_text(encoding="utf-8") for file in SRC.rglob("*.py")
                                           if file.name != "settings_table.py")))  # fmt: skip
    read = (row.key for row in settings.settings() if not row.kept)  # those that are kept have no effect, and say so
    assert not [key for key in read if key.rpartition(".")[2] not in {*words, "<name>", "name>"}]


def test_every_variable_is_in_the_table() -> None:
    known = {*VARIABLES, *(row.variable for row in settings.settings())}
    known |= {name for row in PROVIDERS.values() for name in (*row.keys, row.base_url_variable)}
    platforms = [name.removeprefix("<PLATFORM>") for name in known if name.startswith("<PLATFORM>")]
    for file in SRC.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "environ" not in text or "hermes_testing" in file.parts:
            continue
        for name in re.findall(r'"((?:HERMES|API_SERVER|GATEWAY|TELEGRAM)_[A-Z_]+)"', text):
            ours = name in known or name.endswith(tuple(platforms)) or NOT_SETTINGS.fullmatch(name)
            assert ours, f"{name} in {file.name} is not in hermes_config/settings_table.py"


def test_the_defaults_are_those_of_an_empty_home(home: Path) -> None:
    loaded = config.load(home)
    gateway = load_gateway_config(loaded)
    window = window_for(demo.endpoint(), {})
    rows = {row.key: row.default for row in settings.settings()}
    found: dict[str, Any] = {
        **{f"session_reset.{name}": value for name, value in gateway.default_reset_policy.to_dict().items()},
        **{f"streaming.{name}": value for name, value in gateway.outbound.streaming.to_dict().items()},
        **{name: value for name, value in gateway.to_dict().items() if isinstance(value, bool | int | float)},
        "agent.gateway_timeout": gateway.turn_seconds, "agent.gateway_auto_continue_freshness": gateway.resume_window,
        "media_bytes": gateway.media_bytes, "api_server.port": gateway.api_server.port,
        "api_server.host": gateway.api_server.host, "state.synchronous": loaded.state.synchronous,
        "sessions.retention_days": loaded.sessions.retention_days, "demo.tokens_per_second": demo.TOKENS_PER_SECOND,
        "sessions.min_interval_hours": loaded.sessions.min_interval_hours,
        "sessions.vacuum_after_prune": loaded.sessions.vacuum_after_prune, "compression.threshold": window.threshold,
        "compression.target_ratio": window.target_ratio, "compression.protect_first_n": window.protect_first,
        "compression.protect_last_n": window.protect_last,
    }  # fmt: skip
    compared = {key: (rows[key], value) for key, value in found.items() if rows.get(key) is not None}
    assert len(compared) > 20
    assert {key: pair for key, pair in compared.items() if pair[0] != pair[1]} == {}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page.page(), "make docs"


@pytest.mark.parametrize(
    ("tree", "written", "meant"),
    [
        ({"model": {"contxt_length": 5}}, "model.contxt_length", "model.context_length"),
        ({"display": {"busy_imput_mode": "queue"}}, "display.busy_imput_mode", "display.busy_input_mode"),
        ({"gateway": {"max_mesage_age": 1}}, "gateway.max_mesage_age", "gateway.max_message_age"),
        (
            {"platforms": {"telegram": {"extra": {"anything": 1}}}, "plugins": {"entries": {"mine": {"enabld": 1}}}},
            "",
            "",
        ),
        ({"somebody": {"elses": 1}, "models": {"a.b": {"price": {"input": 1, "output": 2}}}}, "", ""),
    ],
)
def test_what_looks_mistyped_is_named(tree: dict[str, Any], written: str, meant: str) -> None:
    said = f"{written} is not a known key; did you mean {meant}?"
    assert settings.mistyped(tree) == ([said] if written else [])


def test_what_has_no_effect_is_named(home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("gateway: {always_log_local: true}\nstt: {enabled: true}\n", encoding="utf-8")
    assert settings.idle(config.load(home).tree) == ["gateway.always_log_local", "stt.enabled"]
