"""`hermes demo crash` (`make crash`): kills the demo's gateway with -9, in the middle of its work.

It kills only the gateway of a demo's home, found by its pid file and lock. The demo's own process restarts it; this one
only watches: when it is back, and what became of the messages it worked on, according to the store and the fake phone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gateway import status
from hermes_cli.demo.processes import MARKER, PHONE
from hermes_config.errors import HermesError, UsageError
from hermes_state import SessionDB
from hermes_state.turns.inbox import InboxRow
from hermes_state.turns.outbox import OutboxItem

T = TypeVar("T")

_BACK_SECONDS = 15.0
_DONE_SECONDS = 300.0
_LOOK_SECONDS = 0.02
_RECOGNISED = 20
"""How many equal characters make two messages the same."""


class GatewayNotBack(HermesError):
    """The gateway did not come back."""

    default_hint = "The terminal in which make run was typed may show why."


def crash(home: Path) -> int:
    """Kill the gateway, watch it come back and report; return 0 when nothing was lost or doubled."""
    pid = status.read_pid(home) if (home / MARKER).is_file() and status.is_running(home) else None
    if pid is None:
        raise UsageError("no demo is running here", where=str(home), hint="make run starts one.")
    os.environ["HERMES_HOME"] = str(home.resolve())  # a crash report belongs there, too
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        # Accepted messages without an outcome, oldest first.
        rows = sorted((*db.inbox.list(state="claimed"), *db.inbox.list(state="queued")), key=lambda row: row.id)
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        print(f"✗ kill -9 {pid} (the demo's gateway){'' if rows else '; it was idle'}")
        back = _until(lambda: _started(home, after=pid), seconds=_BACK_SECONDS)
        if back is None:
            raise GatewayNotBack(f"the gateway did not come back within {_BACK_SECONDS:.0f} s", where=str(home))
        print(f"✓ back after {time.monotonic() - began:.2f} s (process {back})")
        if not rows:
            print("  To kill it in the middle of an answer, ask for the long story and run this again.")
            return 0
        print("  … waiting until the interrupted turn ends (Ctrl-C stops waiting)", flush=True)  # to a pipe, too
        done = _until(lambda: _ended(db, rows), seconds=_DONE_SECONDS)
        return _tell(db, home, done or [db.inbox.get(row.id) or row for row in rows])


def _started(home: Path, *, after: int) -> int | None:
    seen = status.read_status(home)
    return seen.pid if seen.pid not in (None, after) and seen.started_at is not None else None


def _ended(db: SessionDB, rows: list[InboxRow]) -> list[InboxRow] | None:
    """Return the rows once each has an outcome and its deliveries have ended; else None."""
    now = [db.inbox.get(row.id) or row for row in rows]
    answers = [item for row in now for item in _answers(db, row)]
    settled = all(row.ended_at is not None for row in now) and all(item.ended_at is not None for item in answers)
    return now if settled else None


def _answers(db: SessionDB, row: InboxRow) -> list[OutboxItem]:
    """Return the answers to a message, oldest first, without notices and questions."""
    found = {moment.ref for moment in db.traces.get(row.trace_id) if moment.where == "outbox"}
    items = [item for ref in sorted(found, key=int) if (item := db.outbox.get(int(ref))) is not None]
    return [item for item in items if item.payload.get("kind") in ("answer", "command")]


# -- what became of them ---------------------------------------------------------------------------------------


def _tell(db: SessionDB, home: Path, rows: list[InboxRow]) -> int:
    answered, stopped, doubled, edited = 0, 0, 0, []
    shown = _on_the_phone(home)
    for row in rows:
        items = [item for item in _answers(db, row) if item.state == "sent"]
        answered += row.state == "answered" and bool(items)
        stopped += row.state == "dropped"
        doubled += max(0, len(items) - 1) + sum(_copies(db, item, shown) for item in items)
        if row.state == "answered":
            edited += [number for item in items for number in item.platform_ids]
    if edited:
        print(f"  on the phone: {'message' if len(edited) == 1 else 'messages'} {', '.join(edited)}, edited to the end")
    by_you = f", interrupted by you {stopped}" if stopped else ""
    print(f"  accepted {len(rows)}, answered {answered}{by_you}, doubled {doubled}")
    called = os.path.relpath(sys.argv[0]) if sys.argv[0].endswith("hermes") else "hermes"
    print(f"  what happened: HERMES_HOME={home} {called} trace {rows[-1].trace_id}")
    return 0 if answered + stopped == len(rows) and not doubled else 1


def _on_the_phone(home: Path) -> dict[int, str]:
    """Return the bot's messages in Ada's chat by message id, as her phone shows them."""
    try:
        phone = json.loads((home / PHONE).read_text(encoding="utf-8"))
        address = f"{phone['address']}/control/bot{phone['token']}/look"
        request = urllib.request.Request(address, data=b'{"name": "ada"}', headers={"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
            messages = json.load(answer)["result"]["messages"]
    except OSError as error:
        raise GatewayNotBack("the fake Telegram does not answer", where=str(home)) from error
    return {int(message["id"]): str(message["text"]) for message in messages if message["bot"]}


def _copies(db: SessionDB, item: OutboxItem, shown: dict[int, str]) -> int:
    """Count other messages with the same beginning since the previous delivery."""
    own = {int(number) for number in item.platform_ids}
    before = [int(number) for other in db.outbox.list() if other.id < item.id for number in other.platform_ids]
    whole = "".join(shown.get(number, "") for number in sorted(own))
    since = max(before, default=0)
    others = [text for number, text in shown.items() if number > since and number not in own]
    return sum(len(text) >= _RECOGNISED and text[:_RECOGNISED] == whole[:_RECOGNISED] for text in others)


def _until(look: Callable[[], T | None], *, seconds: float) -> T | None:
    until = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return found
