"""A live hostile server: what it names, answers, floods and asks costs its own calls, and nobody else anything."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.mcp.conftest import PROGRAM, McpBench
from tests.hermes_agent.mcp.test_connections import small

pytestmark = pytest.mark.slow
HOSTILE = PROGRAM.with_name("mcp_hostile_server.py")


def hostile(**more: Any) -> dict[str, Any]:
    needs = [f"read:{HOSTILE.parent}"]
    return {"command": os.path.realpath(sys.executable), "args": ["-S", str(HOSTILE)], "needs": needs, **more}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[McpBench]:
    made = McpBench(tmp_path / "home", {"evil": hostile(timeout=5), "good": small()})
    made.connected()
    yield made
    made.close()


def test_its_names_take_nobodys_place_and_give_no_orders(bench: McpBench) -> None:
    names = [name for name in bench.names() if "evil" in name]
    assert all(name.startswith("mcp__evil__") and name.isascii() and name.isprintable() for name in names)
    assert "mcp__evil__terminal" in names
    assert sum(name.startswith("mcp__evil__t_rminal") for name in names) == 1, "the one with a Cyrillic letter"
    same = [name for name in names if name.startswith("mcp__evil__read_file")]
    assert len(same) == 2 and "mcp__evil__read_file" not in same, "neither has the name that both would have"
    for tool in bench.source.tools():
        assert "Ignore" not in tool.description, "a name without a description is no description"
        assert tool.summary({}).isprintable()


def test_a_list_that_changes_all_the_time_is_read_now_and_then(bench: McpBench) -> None:
    before, began = int(bench.call("mcp__evil__relist").content), time.monotonic()
    time.sleep(3.0)
    assert bench.call("mcp__good__junk").content.startswith("junk")
    lists = int(bench.call("mcp__evil__relist").content) - before
    assert 1 <= lists <= time.monotonic() - began + 2, "not in a loop"
    bench.until(lambda states: any("only_in_list" in name for name in bench.names()))


def test_wrong_ids_and_half_an_answer(bench: McpBench) -> None:
    assert "did not answer in time" in bench.call("mcp__evil__wrong_id").content
    assert "terminal ran" in bench.call("mcp__evil__terminal").content, "it is still connected"
    ended = bench.call("mcp__evil__half")
    assert ended.is_error
    assert "ended during the call" in ended.content
    assert "terminal ran" in bench.call("mcp__evil__terminal").content


def test_a_flood_of_errors_holds_no_other_server(bench: McpBench) -> None:
    bench.call("mcp__evil__stderr")
    for _ in range(5):
        began = time.monotonic()
        assert bench.call("mcp__good__junk").content.startswith("junk")
        assert time.monotonic() - began < 3


def test_a_pattern_of_its_schema_holds_no_other_server(bench: McpBench) -> None:
    assert bench.call("mcp__evil__pattern").content == "matched"
    assert bench.call("mcp__good__junk").content.startswith("junk")


def test_it_cannot_ask_the_model_nor_for_folders(bench: McpBench) -> None:
    assert bench.call("mcp__evil__sampling").content == "[true, true, true]"


@pytest.mark.parametrize(("answer", "asked", "accepted"), [("no idea", 12, 12), (None, 1, 0)])
def test_it_may_ask_a_person_a_few_times(bench: McpBench, answer: str | None, asked: int, accepted: int) -> None:
    bench.answer = answer
    said = bench.call("mcp__evil__questions").content
    assert (len(bench.asked), said.count("accept")) == (asked, accepted), said
    assert said.count("decline") == 60 - asked
    assert all(one.startswith("The MCP server evil asks: Your password?") for one in bench.asked)


def test_a_question_that_is_no_form_is_declined(bench: McpBench) -> None:
    said = bench.call("mcp__evil__odd_question").content
    assert said.count("decline") + said.count("error") == 4, said
    assert not bench.asked
    assert "terminal ran" in bench.call("mcp__evil__terminal").content


@pytest.mark.parametrize("name", ["meta", "content"])
def test_an_answer_of_wrong_types_is_an_error_of_its_call(bench: McpBench, name: str) -> None:
    said = bench.call(f"mcp__evil__{name}")
    assert said.is_error
    assert said.source == "MCP server evil"
    assert "terminal ran" in bench.call("mcp__evil__terminal").content


def test_a_link_is_words_and_a_picture_that_is_none_is_left_out(bench: McpBench) -> None:
    link = bench.call("mcp__evil__link")
    assert link.content == "[resource file:///etc/passwd: passwords]"
    seen = bench.call("mcp__evil__picture")
    assert not seen.images, "a provider would refuse it, and each later request with it"
    assert "2 of 2 images left out" in seen.content


def test_it_cannot_fill_the_log(bench: McpBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert bench.call("mcp__evil__notify").content == "notified"
    assert len(caplog.records) < 100


def test_what_is_replaced_and_closed_leaves_no_task(tmp_path: Path) -> None:
    made = McpBench(tmp_path / "home", {"one": small()})
    made.connected()
    loop = made.source._loop.get()
    made.use({"two": small()})
    made.close()
    assert loop.is_closed(), "which it is only when no task is left"
