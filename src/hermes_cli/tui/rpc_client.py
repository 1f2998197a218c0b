"""The client of the server process: requests with answers, and events in order, over pipes.

It starts before Textual is imported, so that the server and the window get ready at the same time. A thread reads;
everything else happens on the window's loop. When the server dies, open requests fail, `lost` is called once, and
`start` may start another server. The server has its own session, so Ctrl-C and Ctrl-Z of the terminal do not reach it;
it ends when its input closes, even if this process is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from hermes_cli.framework import text as words
from hermes_config.errors import HermesError
from hermes_config.version import module_command
from tui_gateway.wire import frames

Event = Mapping[str, Any]
Ask = Callable[..., Awaitable[dict[str, Any]]]
"""`RpcClient.ask`."""
_LAST_WORDS = 2_000
_ENDING_SECONDS = 2.0
RESTARTS, _RESTART_SECONDS = 3, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The options of a chat from the command line."""

    session_id: str | None = None
    """The conversation to go on with; None for a new one."""
    model: str | None = None
    provider: str | None = None
    yolo: bool = False
    source: str | None = None
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    card: tuple[tuple[str, str], ...] = ()
    """The first lines of the window, each a label and a text. The caller who gives them also prints the last lines."""

    @property
    def want_own_turns(self) -> bool:
        """Whether an option applies only to turns that run in this terminal, not in a gateway."""
        return bool(self.model or self.provider or self.yolo or self.toolsets or self.max_turns)


def is_command(typed: str) -> bool:
    """Whether a text is a command: `/status`, but not `/etc/hosts is what?`, `//` or several lines."""
    name = typed.strip().partition(" ")[0]
    return name.startswith("/") and len(name) > 1 and "/" not in name[1:] and "\n" not in typed.strip()


class RequestRefused(HermesError):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerLost(HermesError):
    """The server ended before it answered."""

    told = False
    """Whether `lost` informs the person."""


class NotStarted(HermesError):
    """The process behind the window could not start."""


class RpcClient:
    """One server process at a time. `start` may be called anywhere; all else on the loop given to `attach`."""

    def __init__(self, command: Sequence[str] = (), *, folder: Path | None = None) -> None:
        self._command, self._folder = command or module_command("tui_gateway.entry"), folder
        self._process: subprocess.Popen[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._early: deque[tuple[subprocess.Popen[bytes], dict[str, Any] | str]] = deque()
        self._lock = threading.Lock()
        self._complaints = b""
        self._closing = False
        self._was_ready = False
        self._longest = 0
        """The server's limit for a request in bytes; 0 before it is known."""
        self._over = "it was not started"
        """Why there is no server; empty while one runs."""
        self._unsent: SimpleQueue[bytes | None] = SimpleQueue()
        self.restarts: list[float] = []
        """The times at which lost servers were replaced."""
        self.heard: Callable[[Event], None] = lambda event: None
        self.lost: Callable[[str], None] = lambda why: None
        self.failed: Callable[[NotStarted], None] = lambda error: None
        """Called instead of `lost` when a server reported why it cannot start; another one could not either."""

    # -- the process ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._complaints, self._was_ready = b"", False
        process = self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, cwd=self._folder,
        )  # fmt: skip
        assert process.stdin is not None
        self._over, self._unsent = "", SimpleQueue()
        _thread(self._read, process, _thread(self._overhear, process))
        _thread(_write_all, process.stdin, self._unsent)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass frames to this loop from now on, in the caller's context, the earlier ones first."""
        with self._lock:
            self._loop, self._context = loop, contextvars.copy_context()
        loop.call_soon(self._take, context=self._context)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Close the server's input, which ends the server, and wait a moment for it."""
        self._closing = True
        process = self._process
        if process is None:
            return
        self._unsent.put(None)
        try:
            process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()

    # -- on the reading threads ----------------------------------------------------------------------------

    def _read(self, process: subprocess.Popen[bytes], overhearing: threading.Thread) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                try:
                    frame = json.loads(line)
                except ValueError:  # cut off in the middle: its end follows
                    continue
                self._hand_over(process, frame)
        self._hand_over(process, self._why(process, overhearing))

    def _overhear(self, process: subprocess.Popen[bytes]) -> None:
        """Collect the server's stderr; it is shown when the server ends."""
        assert process.stderr is not None
        with process.stderr as stream:
            for line in stream:
                if process is self._process:
                    self._complaints = (self._complaints + line)[-_LAST_WORDS:]

    def _why(self, process: subprocess.Popen[bytes], overhearing: threading.Thread) -> str:
        """Wait for the server's end and describe it. Runs on a thread, so that no key waits for it."""
        try:
            code: int | None = process.wait(1.0)
        except subprocess.TimeoutExpired:  # it closed its output and lives on: it is no use as a server
            process.kill()
            code = None
        overhearing.join(_ENDING_SECONDS)
        said = self._last_words().rstrip(".")
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return f"the process behind this window ended {how}{f': {said}' if said else ''}"

    def _hand_over(self, process: subprocess.Popen[bytes], frame: dict[str, Any] | str) -> None:
        """Pass on a frame, or the reason why no more frames come."""
        with self._lock:
            self._early.append((process, frame))
            loop = self._loop if len(self._early) == 1 else None
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, at this very moment perhaps: the window has ended
                loop.call_soon_threadsafe(self._take, context=self._context)

    # -- on the loop ---------------------------------------------------------------------------------------

    def _take(self) -> None:
        while True:
            with self._lock:
                if not self._early:
                    return
                process, frame = self._early.popleft()
            if process is not self._process:
                continue
            if isinstance(frame, str):
                self._ended(frame)
                continue
            self._was_ready = True
            if frame.get("method") == "event":
                event: Event = frame.get("params") or {}
                if event.get("type") == "gateway.ready":
                    self._longest = int(event["payload"]["request_bytes"])
                self.heard(event)
            else:
                self._answered(frame)

    def _answered(self, frame: Mapping[str, Any]) -> None:
        waiting = self._waiting.pop(int(frame.get("id") or 0), None)
        if waiting is None or waiting.done():
            return
        error = frame.get("error")
        if error is None:
            waiting.set_result(frame.get("result"))
        else:
            waiting.set_exception(RequestRefused(int(error.get("code") or 0), str(error.get("message") or "")))

    def _ended(self, why: str) -> None:
        self._over = why
        self._unsent.put(None)
        waiting, self._waiting = list(self._waiting.values()), {}
        lost = ServerLost(why)
        lost.told = True
        for one in waiting:
            if not one.done():
                one.set_exception(lost)
        if self._closing:
            return
        if not self._was_ready and (said := self._last_words().removeprefix("hermes: ")):
            self.failed(NotStarted(said))
        else:
            self.lost(why)

    def _last_words(self) -> str:
        return self._complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def may_restart(self) -> bool:
        """Whether a lost server may be replaced: a few times in a minute."""
        now = time.monotonic()
        self.restarts = [one for one in self.restarts if now - one < _RESTART_SECONDS]
        if len(self.restarts) >= RESTARTS:
            return False
        self.restarts.append(now)
        return True

    async def open(self, options: ChatOptions, *, stored_id: str, **wanted: Any) -> dict[str, Any]:
        """Open a stored or new conversation with these options; return its state."""
        given = {"source": options.source, "toolsets": options.toolsets, "max_turns": options.max_turns}
        if stored_id:
            given |= {"session_id": stored_id, **wanted}
        else:
            given |= {"model": options.model, "provider": options.provider}
        method = "session.resume" if stored_id else "session.create"
        state = await self.ask(method, **{name: value for name, value in given.items() if value is not None})
        if options.model and stored_id:
            await self.ask("config.set", key="model", value=options.model, session_id=state["session_id"])
        if options.yolo:
            await self.ask("config.set", key="yolo", value=True, session_id=state["session_id"])
            state["info"] = {**state.get("info", {}), "yolo": True}
        return state

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer. Raises `RequestRefused` or `ServerLost`."""
        if self._over:
            raise ServerLost(self._over)
        line = self._line(method, params)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        self._unsent.put(line)
        return await answer

    def tell(self, method: str, **params: Any) -> None:
        """Send a request without waiting for its answer; works after the loop has ended, too."""
        if not self._over:
            self._unsent.put(self._line(method, params))

    def _line(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Encode the next request. Too long ones are refused here: the server's refusal would not name the request."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        line = f"{frames.encode(request)}\n".encode()
        if 0 < self._longest < len(line):
            long, most = words.size(len(line)), words.size(self._longest)
            raise RequestRefused(frames.INVALID, f"this is too long to be sent: {long}, and {most} is the most")
        return line


def _write_all(stream: IO[bytes], unsent: SimpleQueue[bytes | None]) -> None:
    """Write requests on a separate thread: the pipe may be full, and the window must not wait for it."""
    with suppress(OSError), stream:  # nobody reads any more: the end of the server's output says so to everybody
        while (line := unsent.get()) is not None:
            stream.write(line)
            stream.flush()


def _thread(target: Callable[..., None], *args: object) -> threading.Thread:
    made = threading.Thread(target=target, args=args, daemon=True, name=f"link{target.__name__}")
    made.start()
    return made
