"""Commands: what comes back, and that nothing is left behind however they end."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_agent.tools import registry
from hermes_agent.tools.base import ToolResult
from hermes_agent.turn.control import Stop
from hermes_config.config import of as config_of

from ..conftest import Bench

pytestmark = pytest.mark.slow

BEAT = "while :; do echo $((n+=1)) > beat; sleep 0.02; done"
"""A process that shows in a file that it runs. Its id would say nothing: a confined command has ids of its own."""


def _stopped(beat: Path) -> bool:
    """Whether the process that beats there runs no more."""
    seen = beat.read_text()
    time.sleep(0.4)
    return beat.read_text() == seen


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _written(sign: Path) -> None:
    """Wait until the command has said that it runs."""
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(lambda: sign.exists() and sign.read_text()):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


@pytest.mark.needs_bubblewrap
def test_output_error_output_and_exit_code_come_back(bench: Bench) -> None:
    result = bench.call("terminal", command="echo out; echo err >&2; exit 3")
    assert result.content.startswith("out\nerr\n[exit code 3]\n[inside bubblewrap: ")
    assert result.is_error
    assert "exit code 3" in result.shown


def test_a_command_that_says_nothing_is_not_an_empty_result(bench: Bench) -> None:
    assert bench.call("terminal", command="true").content == "(no output)\n[exit code 0]"


def test_every_command_passes_the_gate_with_its_exact_text_and_place(bench: Bench) -> None:
    (bench.workdir / "sub").mkdir()
    bench.gate.refuses = ("command",)
    result = bench.call("terminal", command="touch made", workdir="sub")
    assert result.is_error and "not approved" in result.content
    assert not (bench.workdir / "sub" / "made").exists()
    (action,) = bench.gate.asked
    assert (action.kind, action.text, action.workdir) == ("command", "touch made", str(bench.workdir / "sub"))


def test_it_runs_in_the_workspace_or_where_it_is_told(bench: Bench) -> None:
    (bench.workdir / "sub").mkdir()
    assert bench.call("terminal", command="pwd").content.startswith(f"{bench.workdir}\n")
    assert bench.call("terminal", command="pwd", workdir="sub").content.startswith(f"{bench.workdir}/sub\n")
    missing = bench.call("terminal", command="pwd", workdir="nowhere")
    assert missing.is_error and "does not exist" in missing.content


def test_a_command_gets_no_input_and_no_terminal(bench: Bench) -> None:
    command = "cat; [ -t 0 ] || echo none; (echo x > /dev/tty) 2>/dev/null || echo no tty"
    assert bench.call("terminal", command=command).content.startswith("none\nno tty\n")


def test_a_time_out_kills_the_whole_group_and_keeps_what_was_printed(bench: Bench) -> None:
    began = time.monotonic()
    result = bench.call("terminal", command=f"echo started; ({BEAT}) & sleep 60", timeout=2)
    assert time.monotonic() - began < 10
    assert result.is_error
    assert result.content.startswith("started\n[stopped after 2 s")
    assert _stopped(bench.workdir / "beat")


def test_a_group_that_ignores_the_polite_signal_is_killed(bench: Bench) -> None:
    bench.limited(tool_stop_ms=600)
    result = bench.call("terminal", command=f"trap '' TERM; {BEAT}", timeout=2)
    assert "stopped after 2 s" in result.content
    assert _stopped(bench.workdir / "beat")


@pytest.mark.needs_bubblewrap
def test_a_background_child_does_not_hold_the_call_and_is_ended(bench: Bench) -> None:
    began = time.monotonic()
    command = f"({BEAT}) & until [ -s beat ]; do sleep 0.01; done; echo done"
    result = bench.call("terminal", command=command)
    assert time.monotonic() - began < 10
    assert result.content == "done\n[exit code 0]"
    assert _stopped(bench.workdir / "beat")


@pytest.mark.parametrize(
    "start", ["({}) &", "setsid bash -c '{}' &", "nohup bash -c '{}' >/dev/null &", "( ( ({}) & ) & );"]
)
@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "host"])
def test_nothing_that_left_its_group_outlives_the_command(bench: Bench, sandbox: str, start: str) -> None:
    held = bench.with_(config=config_of(bench.ctx.home, {"executor": sandbox}))
    command = f"{start.format(BEAT)} until [ -s beat ]; do sleep 0.01; done; echo done"
    assert held.call("terminal", command=command).content.startswith("done\n[exit code 0]")
    assert _stopped(bench.workdir / "beat")


def _interrupted(bench: Bench, command: str, *, sign: Path) -> tuple[ToolResult, float]:
    async def run() -> tuple[ToolResult, float]:
        stop = Stop()
        tool = registry.Registry().get("terminal")
        assert tool is not None
        call = asyncio.create_task(
            registry.run_call(tool, f'{{"command": "{command}"}}', replace(bench.ctx, stop=stop))
        )
        await _written(sign)
        stop.set()
        began = time.monotonic()
        return await call, time.monotonic() - began

    return asyncio.run(run())


def test_an_interruption_ends_the_command_and_says_who_did(bench: Bench) -> None:
    sign = bench.workdir / "beat"
    result, waited = _interrupted(bench, f"echo before; {BEAT}", sign=sign)
    assert waited < 3
    assert result.is_error
    assert result.content.startswith("before\n[interrupted by the person")
    assert _stopped(sign)


def test_a_cancelled_turn_leaves_no_process(bench: Bench) -> None:
    sign = bench.workdir / "beat"

    async def run() -> None:
        call = asyncio.create_task(bench.acall("terminal", json.dumps({"command": BEAT})))
        await _written(sign)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert _stopped(sign)


def test_a_flood_is_ended_and_takes_bounded_memory(bench: Bench) -> None:
    bench.limited(terminal_output_bytes=20 << 20, result_file_bytes=1 << 20)
    result = bench.call("terminal", command=f"({BEAT}) & yes 0123456789012345678901234567890123456789")
    assert "printed more than" in result.content
    assert len(result.content) <= bench.ctx.db.limits.tool_result_chars + 500
    assert _stopped(bench.workdir / "beat")
    (file,) = (bench.ctx.home / "results").rglob("*.txt")
    assert file.stat().st_size == 1 << 20


def test_a_long_output_is_cut_in_the_middle_and_can_be_paged_through(bench: Bench) -> None:
    result = bench.call("terminal", command="seq 1 60000")
    assert result.content.startswith("1\n2\n3\n")
    assert "\n60000\n[exit code 0]" in result.content
    assert "left out" in result.content
    (file,) = (bench.ctx.home / "results").rglob("*.txt")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert str(file) in result.content
    page = bench.call("read_file", path=str(file), offset=30_000, limit=1)
    assert "30000|30000" in page.content
    assert not any(action.kind == "read" for action in bench.gate.asked), "its own results need nobody's leave"


def test_binary_output_is_described(bench: Bench) -> None:
    result = bench.call("terminal", command=r"printf '\x89PNG\r\n\x1a\n'; head -c 100000 /dev/zero")
    assert "binary data: PNG image" in result.content and "100,008 bytes" in result.content
    assert "\0" not in result.content


def test_control_sequences_and_progress_bars_do_not_reach_the_model(bench: Bench) -> None:
    result = bench.call("terminal", command=r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\n\033]0;title\007end\n'")
    assert result.content == "red\n100%\nend\n[exit code 0]"


def test_people_who_look_on_see_output_as_it_comes(bench: Bench) -> None:
    bench.call("terminal", command="echo one; sleep 0.2; echo two")
    assert bench.live == ["one\n", "two\n"]


@pytest.mark.needs_bubblewrap
def test_a_command_that_dies_of_a_signal_says_so(bench: Bench) -> None:
    assert "[exit code 139 (SIGSEGV)]" in bench.call("terminal", command="kill -SEGV $$").content
    on_host = bench.with_(config=config_of(bench.ctx.home, {"executor": "host"}))
    assert "[killed by SIGSEGV]" in on_host.call("terminal", command="kill -SEGV $$").content


def test_a_child_sees_the_segment_that_is_current_now(bench: Bench) -> None:
    moved = bench.with_(session_id=lambda: "the_next_segment")
    assert moved.call("terminal", command="echo $HERMES_SESSION_ID").content.startswith("the_next_segment\n")


def test_many_commands_wait_in_one_loop_without_a_thread_each(bench: Bench) -> None:
    async def run() -> list[ToolResult]:
        return await asyncio.gather(*(bench.acall("terminal", '{"command": "sleep 0.5; echo ok"}') for _ in range(30)))

    before = _descriptors()
    results = asyncio.run(run())
    assert {result.content for result in results} == {"ok\n[exit code 0]"}
    assert _descriptors() <= before + 1
