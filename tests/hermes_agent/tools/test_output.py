"""What is taken out of a text, what is kept of a long one, and for how long."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.tools import output

from .conftest import Bench

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("1%\r99%\r100%\n", "100%\n"),
        ("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "red link"),
        ("\x1b]0;never closed\nnext", "\nnext"),
        ("nul\0bell\x07back\x08del\x7fc1\x85", "nulbellbackdelc1"),
        ("京都 é 🦊", "京都 é 🦊"),
    ],
)
def test_control_goes_and_text_stays(raw: str, read: str) -> None:
    assert output.clean(raw) == read


@given(st.text())
def test_clean_text_stays_clean(text: str) -> None:
    once = output.clean(text)
    assert output.clean(once) == once
    assert not any(ord(c) < 32 and c not in "\t\n" for c in once)


@given(st.text(alphabet="aé\n", min_size=3_000, max_size=6_000), st.integers(1_000, 2_500))
def test_a_cut_text_fits_and_begins_and_ends_as_the_whole(text: str, limit: int) -> None:
    cut = output.head_and_tail(text[:limit], text[-limit:], limit=limit, whole=len(text), note="note")
    assert len(cut) <= limit
    head, _, tail = cut.partition("\n\n[…")
    assert text.startswith(head) and text.endswith(tail.partition("…]\n\n")[2])


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (b"text", False),
        ("é京🦊".encode() * 5_000, False),
        (b"a\0b", True),
        (bytes(range(128, 256)) * 10, True),
        (b"", False),
    ],
)
def test_binary_is_told_from_text(data: bytes, binary: bool) -> None:
    assert output.is_binary(data) is binary


def test_a_conversations_result_files_are_bounded_in_bytes_oldest_first(bench: Bench) -> None:
    bench.limited(results_bytes=2_500)
    files = []
    for number in range(4):
        call = bench.with_(call_id=f"call_{number}")
        file = output.keep("x" * 1_000, tool_name="t", ctx=call.ctx)
        assert file is not None
        os.utime(file, (number, time.time() - 100 + number))
        files.append(file)
    assert [file.exists() for file in files] == [False, True, True, True]
    assert output.keep("x", tool_name="t", ctx=bench.with_(call_id="last").ctx) is not None
    assert [file.exists() for file in files] == [False, False, True, True]


def test_old_result_files_of_everybody_go(bench: Bench) -> None:
    other = bench.with_(conversation_id="another")
    old = output.keep("x", tool_name="t", ctx=other.ctx)
    assert old is not None
    os.utime(old, (0, time.time() - 40 * 86_400))
    output._swept.clear()
    output.keep("x", tool_name="t", ctx=bench.ctx)
    assert not old.exists()


def test_a_deleted_conversation_leaves_no_result_files(bench: Bench) -> None:
    kept = output.keep("x", tool_name="t", ctx=bench.ctx)
    others = output.keep("x", tool_name="t", ctx=bench.with_(conversation_id="another").ctx)
    bench.ctx.db.delete_session(bench.ctx.session_id(), bench.ctx.home / "sessions")
    assert kept is not None and others is not None
    assert not kept.parent.exists() and others.exists()


def test_ids_from_outside_are_never_paths(bench: Bench) -> None:
    file = output.keep("x", tool_name="../../t", ctx=bench.with_(conversation_id="../../../etc", call_id="/../x").ctx)
    assert file is not None and file.resolve().is_relative_to(bench.ctx.home.resolve() / "results")


def test_a_disk_that_refuses_costs_the_file_and_not_the_result(bench: Bench) -> None:
    (bench.ctx.home / "results").write_text("in the way")
    result = bench.call("terminal", command="seq 1 60000")
    assert "they could not be kept" in result.content and "\n60000\n" in result.content


@pytest.mark.parametrize(
    ("name", "content", "outcome"),
    [
        ("terminal", "the build failed: see the log\n[exit code 0]", "exit code 0"),
        ("terminal", "[exit code 7]\n[exit code 1, after 2 s]", "exit code 1, after 2 s"),
        ("terminal", "[runs in the background as proc_1, at most 24 h.]", "runs in the background as proc_1"),
        ("terminal", "The command was not run: denied by Ada.", "not run"),
        ("web_extract", "web_extract: unknown parameter url (did you mean urls?).", "failed"),
        ("mine", "mine failed: RuntimeError", "failed"),
        ("mine", "mine was not run: denied by Ada.", "not run"),
        ("read_file", "     1|the deployment failed: no room\n[exit code 1]", "done"),
        ("none", "There is no tool named 'none'.", "failed"),
    ],
)
def test_a_stored_result_tells_how_its_call_ended(name: str, content: str, outcome: str) -> None:
    assert output.outcome_of(name, content) == outcome
    well = outcome in ("done", "exit code 0") or outcome.startswith("runs")
    assert output.looks_failed(name, content) is not well
