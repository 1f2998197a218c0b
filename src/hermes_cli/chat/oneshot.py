"""One turn for a shell or a script: `-q`, `-z`, and text in a pipe.

Nobody can approve anything here: every call that needs permission is denied, and the model learns it. At a terminal the
answer streams; in a pipe it is printed once, complete, so that a script never reads half of a failed answer.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent import AIAgent, budget, hooks, mentions, sync_loop
from hermes_agent.agent import ConversationBusy
from hermes_cli import plugins
from hermes_cli.chat.render import Screen
from hermes_cli.chat.terminal_loop import TerminalLoop, UserQuit
from hermes_cli.framework import output, text
from hermes_cli.sessions import lookup
from hermes_cli.tui.rpc_client import ChatOptions
from hermes_config import logs
from hermes_config.config import Config
from hermes_config.errors import HermesError, UsageError
from hermes_config.home import write_atomic
from hermes_state import SessionDB
from hermes_state.conversations.sessions import chosen_mark
from hermes_state.ids import LOCAL_OWNER, ConversationId
from tui_gateway.session import attach

FAILED = 1
INTERRUPTED = 130
_LOOK_SECONDS = 0.2
_BUSY = "another process is working on this conversation; waiting for it. Ctrl-C stops"
_MOST_PIPED = 4 * 1024 * 1024
_KEPT = (
    "session_id", "model", "provider", "completed", "failed", "interrupted", "partial", "turn_exit_reason", "api_calls",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "total_tokens",
)  # fmt: skip


Result = Mapping[str, Any]


class TurnFailed(HermesError):
    """The model gave no answer."""


def whole_question(asked: str | None) -> str:
    """Return the text of the command line, followed by the piped text."""
    piped = _piped()
    question = "\n\n".join(part for part in ((asked or "").strip(), piped.strip("\n")) if part.strip())
    if not question:
        raise UsageError(
            "there is no question",
            hint='Give a question (hermes -q "…"), pipe one in, or run hermes at a terminal.',
        )
    return question


def _piped() -> str:
    """Return the text from a pipe or a file; never wait for a terminal, a socket or a closed stdin."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):  # closed, or not a file
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return ""
    data = sys.stdin.buffer.read(_MOST_PIPED + 1)
    if len(data) > _MOST_PIPED:
        raise UsageError(f"the piped text is over {text.size(_MOST_PIPED)}", hint="Save it as a file and name that.")
    if b"\0" in data:
        raise UsageError("the piped input is not text", hint="Save it as a file and name that.")
    return data.decode("utf-8", "replace")


def answer(
    db: SessionDB, config: Config, options: ChatOptions, question: str, *, as_json: bool = False, bare: bool = False,
    quiet: bool = False, usage_file: str | None = None,
) -> int:  # fmt: skip
    """Ask, print the answer and return the exit code. The next turn in a chat makes the title."""
    silent = bare or as_json or quiet
    streams = sys.stdout.isatty() and not silent
    # A silent turn shows no notes; the caller prints errors.
    screen = Screen(answer=sys.stdout, aside=io.StringIO() if silent else sys.stderr)
    loop = TerminalLoop()
    asked = _Question(db, config, options, loop, screen, streams=streams)
    try:
        result, footer = loop.drive(asked.answered(question), interrupt=asked.interrupt, idle=screen.waiting)
        code = _print(result, footer, as_json=as_json, screen=screen, streamed=streams)
        sys.stdout.flush()
        if quiet:
            print(f"session_id: {result.get('session_id')}", file=sys.stderr)
        if usage_file is not None:
            write_atomic(usage_file, json.dumps(_figures(result)) + "\n")
        return code
    except UserQuit:
        screen.end_answer()
        return INTERRUPTED
    finally:
        sync_loop.run(asked.close())
        loop.close()


class _Question:
    """One turn with its own agent. Coroutines run on the agents' loop and post to the terminal's loop."""

    def __init__(
        self, db: SessionDB, config: Config, options: ChatOptions, loop: TerminalLoop, screen: Screen, *, streams: bool
    ) -> None:
        logs.install()
        plugins.discover_plugins()
        self._db, self._config, self._loop, self._screen = db, config, loop, screen
        self._gave_up, self._doing = False, ""
        mine = options.session_id is None or lookup.is_own(db, options.session_id)
        model, provider, origin = options.model, options.provider, {"source": options.source} if options.source else {}
        if model or provider:
            origin["model_config"] = json.dumps(chosen_mark(model, provider))
        elif options.session_id is not None:
            chosen = db.chosen_model(options.session_id)
            model, provider = chosen.get("model"), chosen.get("provider")
        self._agent = AIAgent(
            model, provider, session_db=db, session_id=options.session_id, config=config,
            platform="cli", person_id=LOCAL_OWNER, workdir=Path.cwd(), yolo=options.yolo,
            enabled_toolsets=options.toolsets, max_iterations=options.max_turns,
            origin=origin, skip_memory=not mine,
        )  # fmt: skip
        self._agent.makes_titles = False
        if streams:
            self._agent.stream_delta_callback = lambda piece: loop.post(
                screen.end_answer if piece is None else lambda: screen.answer(piece)
            )
        self._agent.tool_progress_callback = self._tool
        self._agent.status_callback = lambda kind, said: loop.post(lambda: screen.note(said))

    async def answered(self, question: str) -> tuple[Result, str]:
        """Run the turn; return its result and footer."""
        from hermes_agent.tools.base import FileContext

        known = self._agent.session_id
        conversation = ConversationId("" if known is None else self._db.get_conversation_root(known))
        names = FileContext(
            db=self._db, home=self._config.home, workdir=Path.cwd(), environ=os.environ, config=self._config,
            conversation_id=conversation,
        )  # fmt: skip
        result = await self._when_free(await asyncio.to_thread(mentions.whole, question, names))
        return result, await asyncio.to_thread(_footer, result, self._db, self._config)

    async def _when_free(self, content: Any) -> Result:
        """Run the turn once no other process (such as the gateway) works on the conversation."""
        told = False
        while True:
            request = await asyncio.to_thread(attach.turn_request, self._db, self._agent.session_id)
            try:
                return await self._agent.arun_conversation(content, request=request)
            except ConversationBusy:
                if self._gave_up:
                    raise
            if not told:
                self._loop.post(lambda: self._screen.note(_BUSY))
                told = True
            await asyncio.sleep(_LOOK_SECONDS)

    def interrupt(self) -> None:
        """Stop the turn and keep its finished work."""
        self._gave_up = True
        self._agent.interrupt()

    async def close(self) -> None:
        """End the conversation, unless a chat route leads to it."""
        await self._agent.aclose()
        if (known := self._agent.session_id) is not None:
            await hooks.conversation_left(session_id=known, platform="cli")
            await asyncio.to_thread(self._end, known)

    def _end(self, session_id: str) -> None:
        if not attach.has_route(self._db, session_id):
            self._db.end_session(session_id, "cli_close")

    def _tool(self, event: str, name: str, preview: str, args: Any, **more: Any) -> None:
        if event == "tool.started":
            self._doing = preview
            self._loop.post(lambda: self._screen.tool_started(name, preview))
        elif event == "tool.completed":
            summary, seconds, failed = self._doing, float(more.get("duration", 0.0)), bool(more.get("is_error"))
            self._loop.post(lambda: self._screen.tool_ended(name, summary, seconds=seconds, failed=failed, why=preview))


def _print(result: Result, footer: str, *, as_json: bool, screen: Screen, streamed: bool) -> int:
    said = str(result.get("final_response") or "")
    code = 0 if result.get("completed") else INTERRUPTED if result.get("interrupted") else FAILED
    if as_json:
        output.print_json({"text": said or None, "error": result.get("error"), **_figures(result)})
        return code
    if said and streamed and result.get("response_transformed"):
        screen.end_answer()
        screen.answer(said)  # it differs from the streamed text
    elif said and not streamed and sys.stdout.isatty():
        screen.answer(said)
    elif said and not streamed:
        sys.stdout.write(said if said.endswith("\n") else f"{said}\n")
    screen.end_answer()
    if code == INTERRUPTED:
        screen.note("interrupted; finished work is kept")
    if code == FAILED and not said:
        raise TurnFailed(str(result.get("error") or TurnFailed._default_message()))
    if code == FAILED and result.get("error") and result.get("error") != said:
        output.complain(str(result["error"]))
    screen.say(f"{footer} · session {result.get('session_id')}", style="dim")
    return code


def _figures(result: Result) -> dict[str, Any]:
    priced = result.get("cost_status") != "unknown"
    return {name: result.get(name) for name in _KEPT} | {
        "cost_usd": result.get("estimated_cost_usd") if priced else None
    }


def _footer(result: Result, db: SessionDB, config: Config) -> str:
    """Make the line under an answer: model, tokens, today's spend and the daily limit. Reads the store."""
    tokens = int(result.get("total_tokens") or 0)
    return (
        f"{result.get('model', '')} · {text.counted(tokens, 'token')} · {budget.spent_today(db, config, LOCAL_OWNER)}"
    )
