"""`python -m tui_gateway.entry`: the server over standard input and output.

The real stdout carries only frames: the descriptor is replaced before anything else of ours is imported, so that
neither a stray `print` nor a child process can write between two frames. The process ends with its input, when its
reader is gone, and on SIGTERM or SIGHUP, always with exit code 0 and within a short grace period. Requests from before
the end of input are answered, live sessions are finalised, and the process that opens the conversation next recovers a
running turn.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, TextIO

from hermes_config import logs
from hermes_config.errors import HermesError
from hermes_config.home import ensure_folder, ensure_home, private_open
from hermes_config.version import forget_working_folder

if TYPE_CHECKING:
    from hermes_config.limits import Limits

_log = logging.getLogger("hermes.rpc")
_GRACE_SECONDS = 1.0
_ending = threading.Lock()
"""The thread that ends the process never releases it: the reader and the writer may both see the client gone."""


def main() -> int:
    forget_working_folder()
    out = _take_stdout()
    try:
        ensure_home()
    except HermesError as error:
        print(f"hermes: {error.one_line()}", file=sys.stderr)
        return 1
    logs.install()
    from hermes_cli import plugins
    from tui_gateway import server
    from tui_gateway.wire import frames, transports

    server._real_stdout = out
    ended, limits = threading.Event(), _limits()
    server._stdio_transport = transports.StdioTransport(lambda: out, most_bytes=limits.rpc_queue_bytes)
    server._stdio_transport.lost = lambda: _leave(ended)
    _handle_signals(ended)
    plugins.discover_plugins()
    try:
        server.write_json(server.ready())
    except HermesError as error:
        known = {"skin": "default", "request_bytes": limits.rpc_frame_bytes}
        server.write_json(frames.event("gateway.ready", None, known))
        server.write_json(frames.event("error", None, {"message": error.one_line()}))
    _read(ended, limits.rpc_frame_bytes)
    if not ended.is_set():  # the input has ended; the client may still read answers
        server.settle(_grace())
    _end()
    return 0


def _take_stdout() -> TextIO:
    """Send frames to the original stdout; everything else that is printed goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return os.fdopen(kept, "w", encoding="utf-8", errors="replace", newline="\n")


def _read(ended: threading.Event, most: int) -> None:
    """Requests, one per line of at most `most` bytes, until the input ends."""
    from tui_gateway import server
    from tui_gateway.wire import frames

    while not ended.is_set():
        line = sys.stdin.buffer.readline(most + 1)
        if not line:
            return
        if len(line) > most:
            while line and not line.endswith(b"\n"):
                line = sys.stdin.buffer.readline(most)
            server.write_json(frames.failure(None, frames.INVALID, f"a request has at most {most} bytes"))
            continue
        if not line.strip():
            continue
        try:
            answer = server.dispatch(frames.parse(line))
        except frames.RpcError as error:
            answer = frames.failure(None, error.code, error.message)
        if answer is not None and not server.write_json(answer):
            return


def _limits() -> Limits:
    from hermes_config import config
    from hermes_config.limits import DEFAULTS

    try:
        return config.load().limits
    except HermesError:  # the first request that needs the configuration reports the error to the client
        return DEFAULTS


def _handle_signals(ended: threading.Event) -> None:
    def end(number: int, frame: object) -> None:
        with private_open(ensure_folder("logs") / "rpc_crash.log", "a") as log:
            log.write(f"signal {number}\n")
            log.flush()
            faulthandler.dump_traceback(log)
        _leave(ended)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def _leave(ended: threading.Event) -> None:
    """End from a signal or the writer: nothing interrupts the reader's read, so another thread ends the process."""

    def end() -> None:
        _end()
        os._exit(0)

    if not ended.is_set():
        ended.set()
        threading.Thread(target=end, daemon=True, name="rpc-end").start()


def _end() -> None:
    """Finalise live sessions and send the last frames, once; after a grace period, end regardless."""
    from tui_gateway import server

    _ending.acquire()

    seconds = _grace()
    closing = threading.Thread(target=server._close_all, args=("tui_shutdown",), daemon=True, name="rpc-closing")
    closing.start()
    closing.join(seconds)
    server._stdio_transport.close(seconds)
    if server._real_stdout is not None:
        with contextlib.suppress(OSError):  # its reader is gone
            server._real_stdout.close()
    if closing.is_alive():
        _log.warning("sessions were still being closed after %g s", seconds, extra={"action": "rpc_end"})
        os._exit(0)
    if server._db is not None:
        server._db.close()


def _grace() -> float:
    given = os.environ.get("HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S", "")
    return float(given) if given.replace(".", "", 1).isdecimal() else _GRACE_SECONDS


if __name__ == "__main__":
    sys.exit(main())
