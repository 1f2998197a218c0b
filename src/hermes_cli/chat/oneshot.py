"""One turn for a shell or a script: `-q`, `-z`, and text in a pipe.

Nobody is asked anything here: whatever needs permission is denied, and the model is told so. At a terminal the answer
streams; in a pipe it is printed once, whole, so that a script never reads half of something that failed.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_cli.chat.render import Screen
from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit
from hermes_cli.framework import output, text
from hermes_config.errors import HermesError, UsageError

if TYPE_CHECKING:
    from hermes_cli.chat_desk import Wishes
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import PersonId


FAILED = 1
INTERRUPTED = 130
_MOST_PIPED = 4 * 1024 * 1024
_KEPT = (
    "session_id", "model", "provider", "completed", "failed", "interrupted", "partial", "turn_exit_reason", "api_calls",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "total_tokens",
)  # fmt: skip


Result = Mapping[str, Any]


class TurnFailed(HermesError):
    """The model gave no answer."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the answer is given."""

    json: bool = False
    bare: bool = False


def whole_question(asked: str | None) -> str:
    """The text of the command line, with what was piped in after it."""
    piped = _piped()
    question = "\n\n".join(part for part in ((asked or "").strip(), piped.strip("\n")) if part.strip())
    if not question:
        raise UsageError(
            "there is nothing to answer",
            hint='Give a question (hermes -q "…"), pipe one in, or run hermes at a terminal.',
        )
    return question


def _piped() -> str:
    """What comes from a pipe or a file; a terminal, a socket or nothing at all is not waited for."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):  # closed, or no file at all
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    data = sys.stdin.buffer.read(_MOST_PIPED + 1)
    if len(data) > _MOST_PIPED:
        raise UsageError(f"more than {text.size(_MOST_PIPED)} were piped in", hint="Save it as a file and name that.")
    if b"\0" in data:
        raise UsageError("what was piped in is not text", hint="Save it as a file and name that.")
    return data.decode("utf-8", "replace")


def answer(
    db: SessionDB, config: Config, wishes: Wishes, question: str, *, form: AnswerForm, session_id: str | None
) -> int:
    """Ask, print, and return the exit code."""
    silent = form.bare or form.json
    streams = sys.stdout.isatty() and not silent
    # Asides of a silent turn go nowhere; errors are told by whoever catches them.
    screen = Screen(answer=sys.stdout, aside=io.StringIO() if silent else sys.stderr)

    def show(result: Result, footer: str) -> int:
        return _print(result, footer, form=form, screen=screen, streamed=streams)

    return _turn(db, config, wishes, question, screen=screen, session_id=session_id, streams=streams, show=show)


def _turn(
    db: SessionDB,
    config: Config,
    wishes: Wishes,
    question: str,
    *,
    screen: Screen,
    session_id: str | None,
    streams: bool,
    show: Callable[[Result, str], int],
) -> int:
    """Run the turn, `show` its end, and only then wait for what goes on beside it (a title)."""
    from hermes_agent import sync_loop
    from hermes_cli.chat_desk import Desk  # brings the agent

    stage = TerminalLoop()
    desk = Desk(db=db, config=config, wishes=wishes, stage=stage, screen=screen, session_id=session_id, streams=streams)

    async def work() -> tuple[Result, str]:
        result = await desk.turn(question)
        return result, await asyncio.to_thread(line, result, db=db, config=config, person_id=desk.person.id)

    try:
        code = show(*stage.drive(work(), interrupt=desk.interrupt, idle=screen.waiting))
        sys.stdout.flush()
        return code
    except UserQuit:
        screen.end_answer()
        return INTERRUPTED
    finally:
        sync_loop.run(desk.close())
        stage.close()


def _print(result: Result, footer: str, *, form: AnswerForm, screen: Screen, streamed: bool) -> int:
    said = str(result.get("final_response") or "")
    code = 0 if result.get("completed") else INTERRUPTED if result.get("interrupted") else FAILED
    if form.json:
        figures = {name: result.get(name) for name in _KEPT}
        priced = result.get("cost_status") != "unknown"
        cost = result.get("estimated_cost_usd") if priced else None
        output.print_json({"text": said or None, "error": result.get("error"), **figures, "cost_usd": cost})
        return code
    if said and streamed and result.get("response_transformed"):
        screen.end_answer()
        screen.answer(said)  # it is not what was streamed
    elif said and not streamed and sys.stdout.isatty():
        screen.answer(said)
    elif said and not streamed:
        sys.stdout.write(said if said.endswith("\n") else f"{said}\n")
    screen.end_answer()
    if code == INTERRUPTED:
        screen.note("interrupted; what was done so far is kept")
    if code == FAILED and not said:
        raise TurnFailed(str(result.get("error") or TurnFailed._default_message()))
    if code == FAILED and result.get("error") and result.get("error") != said:
        print(f"hermes: {text.harmless(str(result['error']))}", file=sys.stderr)
    screen.say(f"{footer} · session {result.get('session_id')}", style="dim")
    return code


def line(result: Mapping[str, Any], *, db: SessionDB, config: Config, person_id: PersonId) -> str:
    """For a finished turn. Reads the store: not on an event loop."""
    from hermes_agent import budget

    tokens = int(result.get("total_tokens") or 0)
    return f"{result.get('model', '')} · {text.counted(tokens, 'token')} · {budget.spent_today(db, config, person_id)}"
