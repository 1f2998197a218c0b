"""The table of settings: what it names, how it judges, and that the page and the code agree with it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from tools import settings_page

from hermes_agent.models import provider_table
from hermes_config import config
from hermes_config.schema import Anything
from hermes_config.sections import UNUSED, UNUSED_VARIABLES, VARIABLES, table

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PAGE = ROOT / "docs" / "operators" / "config-reference.md"
# Variables that are not settings: of the system, or told to children by us.
NOT_SETTINGS = re.compile(
    r"HERMES_(SESSION|UI_SESSION|CRON|MODEL_KEY|DESKTOP|TEST|PHONE)\w*|XDG_\w+|GIT_\w+|NO_COLOR|STATX_\w+|LC_\w+"
)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page.page(), "make docs"


def test_every_row_has_an_area_and_a_default_that_fits() -> None:
    for row in table().rows.values():
        assert row.area or row.unused, row.key
        if row.default is not None and not isinstance(row.kind, Anything):
            assert row.kind.read(row.default) == row.default, row.key


def test_every_row_is_read_somewhere() -> None:
    words = set(re.findall(r"\w+", "".join(file.read_text(encoding="utf-8") for file in SRC.rglob("*.py")
                                           if file.name not in ("sections.py", "limits.py"))))  # fmt: skip
    fields = {"agent.gateway_timeout": "turn_seconds", "agent.gateway_auto_continue_freshness": "resume_window"}
    fields |= {"agent.restart_drain_timeout": "drain_seconds"}
    read = (fields.get(row.key, row.key) for row in table().rows.values() if not row.unused)
    assert not [key for key in read if key.removesuffix(".<name>").rpartition(".")[2] not in words]


def test_the_raw_tree_is_read_only_where_the_file_itself_is_meant() -> None:
    """Everything else is a typed attribute."""
    may = {
        "gateway/config.py", "gateway/access/policy.py",  # platforms: their keys are open
        "hermes_agent/models/providers.py", "hermes_cli/setup/model.py",  # entries of models: so are theirs
        "hermes_agent/home_inventory.py",  # names every key of the file
        "hermes_agent/jobs.py",  # home chats of platforms, and the time zone, which are settings of the gateway
        "hermes_agent/commands/held_answers.py",  # delivery.hold, which is one too
        "hermes_cli/maintenance/config.py", "tui_gateway/rpc/settings.py",  # show and check the file
    }  # fmt: skip
    read = {
        str(file.relative_to(SRC))
        for file in SRC.rglob("*.py")
        if "hermes_config" not in file.parts and re.search(r"\b(?:config|loaded|\(\))\.tree\b", file.read_text("utf-8"))
    }
    assert read <= may


def test_what_is_unused_is_read_nowhere() -> None:
    names = {key.rpartition(".")[2] for key in UNUSED if "_" in key.rpartition(".")[2]}
    names -= {row.key.rpartition(".")[2] for row in table().rows.values() if row.unused is None}
    for file in SRC.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if any(f".{name}" in text for name in names):
            read = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
            assert not read & names, file


def test_every_variable_is_in_the_table() -> None:
    known = {*VARIABLES, *UNUSED_VARIABLES, *(row.variable for row in table().rows.values())}
    known |= {name for row in provider_table.table().values() for name in (*row.keys, row.base_url_variable)}
    platforms = [name.removeprefix("<PLATFORM>") for name in known if name.startswith("<PLATFORM>")]
    for file in SRC.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "environ" not in text or "hermes_testing" in file.parts:
            continue
        for name in re.findall(r'"((?:HERMES|API_SERVER|GATEWAY|TELEGRAM)_[A-Z_]+)"', text):
            ours = name in known or name.endswith(tuple(platforms)) or NOT_SETTINGS.fullmatch(name)
            assert ours, f"{name} in {file.name} is not in hermes_config/sections.py"


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
    assert table().mistyped(tree) == ([said] if written else [])


def test_a_value_that_does_not_fit_is_a_problem_and_the_default_holds(home: Path) -> None:
    tree = {"agent": {"max_turns": "many", "api_max_retries": 0}, "display": 5, "approvals": {"deny": ["a", 7]}}
    loaded = config.of(home, tree)
    assert (loaded.agent.max_turns, loaded.agent.api_max_retries, loaded.display.tool_preview_length) == (90, 0, 60)
    assert loaded.approvals.deny == ("a",), "what can be used is used"
    assert [problem.note for problem in loaded.problems] == [
        "agent.max_turns must be a whole number of at least 1, not 'many'",
        "approvals.deny holds entries that are not text; they are ignored",
        "display must be a section with keys such as busy_input_mode",
    ]
    unread = config.of(home, {"toolsets": {"a": 1}, "platform_toolsets": {"telegram": True}})
    assert (unread.toolsets, unread.platform_toolsets) == ((), {"telegram": ()}), "nothing is offered, not everything"
    loaded.require("compression", "approvals.mode")
    with pytest.raises(config.ConfigError, match=r"agent\.max_turns"):
        loaded.require("agent")


def test_a_running_process_keeps_the_last_good_value_of_one_setting(home: Path) -> None:
    home.mkdir(exist_ok=True)
    file = home / "config.yaml"
    file.write_text("agent: {max_turns: 7}\napprovals: {mode: off}\n")
    assert config.load_or_last_good(home)[0].agent.max_turns == 7
    file.write_text("agent: {max_turns: seven, api_max_retries: 1}\napprovals: {mode: sometimes}\n")
    kept, broken = config.load_or_last_good(home)
    assert broken is None and (kept.agent.max_turns, kept.agent.api_max_retries) == (7, 1)
    assert kept.approvals.mode == "manual", "whatever is no mode asks"
