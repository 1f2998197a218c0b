"""`sessions.json`: a copy of the routes as a file for people. The store decides; the file follows it.

The file is replaced atomically: a reader sees the old one or the new one. `Mirror` writes it in its own thread some
time after a change, so nobody waits for it; many changes make one write, and after a slow write the next one waits
longer. Rows are streamed, so a large file needs little memory.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hermes_config.errors import HermesError
from hermes_config.home import replacing

log = logging.getLogger("hermes.gateway")

# Bound at import: whoever replaces `threading.Thread` for a while does not get ours.
_Thread = threading.Thread
FILE = "sessions.json"
_SOON = 1.0
_SHARE = 50  # a write that took one second is followed by the next after fifty
README = (
    "A mirror of the gateway's routes, written for people: it maps routes (agent:main:<platform>:...) to the session "
    "each leads to. It is not the list of sessions and editing it changes nothing. All sessions are in state.db and "
    "are shown by `hermes sessions list` and `/sessions`. `gateway.write_sessions_json: false` in config.yaml stops it."
)

Entries = Iterable[tuple[str, dict[str, Any]]]


def write(folder: Path, entries: Entries, *, left_out: int = 0) -> None:
    """Replace the folder's file by these entries."""
    note = f"{README} {left_out} more routes are not shown here." if left_out else README
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(folder / FILE) as file:
        file.write(f'{{\n  "_README": {json.dumps(note, ensure_ascii=False)}')
        for key, entry in entries:
            body = json.dumps(entry, indent=2, ensure_ascii=False).replace("\n", "\n  ")
            file.write(f",\n  {json.dumps(key, ensure_ascii=False)}: {body}")
        file.write("\n}\n")


def read(folder: Path) -> dict[str, Any]:
    """The entries of the file, without the notes for people; {} when it cannot be read."""
    file = folder / FILE
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", file, error, extra={"action": "mirror_unreadable"})
        return {}
    if not isinstance(index, dict):
        log.warning("%s holds no index", file, extra={"action": "mirror_unreadable"})
        return {}
    return {key: entry for key, entry in index.items() if not key.startswith("_")}


class Mirror:
    """Calls `write` after changes, in a thread that the first change starts."""

    def __init__(self, write: Callable[[], None], *, soon: float = _SOON) -> None:
        self._write, self._soon = write, soon
        self._changed = threading.Condition()
        self._due = self._closed = False
        self._thread: threading.Thread | None = None

    def touch(self) -> None:
        """Note a change. Returns at once."""
        with self._changed:
            if self._closed or self._due:
                return
            self._due = True
            if self._thread is None:
                self._thread = _Thread(target=self._run, name="hermes-mirror", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Write the last change, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = self._soon
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closed)
                if not self._due:
                    return
                self._changed.wait_for(lambda: self._closed, timeout=pause)
                self._due = False
            started = time.monotonic()
            try:
                self._write()
            except (OSError, ValueError, HermesError) as error:  # the next change tries again
                log.warning("sessions.json was not written: %s", error, extra={"action": "mirror_failed"})
            pause = max(self._soon, _SHARE * (time.monotonic() - started))
