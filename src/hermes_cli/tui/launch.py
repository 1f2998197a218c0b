"""Opens and closes the window: starts the server first, then imports Textual while the server gets ready.

The terminal is restored however the window ends. The last lines name the conversation, and the typed messages that no
turn has taken: they are stored nowhere else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from hermes_cli.framework import text as words
from hermes_cli.tui.rpc_client import ChatOptions, RpcClient
from hermes_config import config
from hermes_config.errors import HermesError

_FRAMES_A_SECOND = "240"
"""How often Textual paints at most: half of what a key waits for is the next frame."""


def can_open() -> bool:
    """Whether this is a real terminal and Textual is installed."""
    draws = os.environ.get("TERM", "dumb") not in ("", "dumb")
    return draws and sys.stdin.isatty() and sys.stdout.isatty() and find_spec("textual") is not None


def open_window(wanted: Callable[[], ChatOptions], *, folder: Path | None = None) -> int:
    """Run the window until the person leaves; return the exit code. `wanted` is called while the server gets ready.

    `folder`: the tools' working folder, if it is not the current one.
    """
    client = RpcClient(folder=folder)
    client.start()
    try:
        return _run(client, wanted())
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # one Ctrl-C too many must not leave the server behind
        client.close()
        signal.signal(signal.SIGINT, before)


def _run(client: RpcClient, start: ChatOptions) -> int:
    os.environ.setdefault("TEXTUAL_FPS", _FRAMES_A_SECOND)
    # A lone Escape is told from the beginning of a key's sequence by time; the default is felt.
    os.environ.setdefault("ESCDELAY", "50")
    from hermes_cli.tui.app import HermesApp
    from hermes_cli.tui.widgets import chosen_shade

    app = HermesApp(client, start, shade=chosen_shade(_skin()))
    code = app.run()
    _tell_unsent(app.unsent(on_purpose=not code))
    if app.failure is not None:
        raise app.failure
    if app.conversation.stored_id and app.conversation.count and not start.card:
        from hermes_cli.sessions import lookup

        print("\n".join(lookup.way_back(app.conversation.stored_id, app.conversation.title)))
    return code or 0


def _tell_unsent(messages: Sequence[str]) -> None:
    if messages:
        print("Messages that were not answered when the window closed:\n")
        print("\n\n".join(words.harmless_block(message).strip("\n") for message in messages), end="\n\n")


def _skin() -> str:
    try:
        return config.load().display.skin or ""
    except HermesError:  # the server tells what is wrong with it
        return ""
