"""WhatsApp knows one person by a phone number and by a "LID"; which belong together stands in files of its bridge.

`<home>/whatsapp/session/lid-mapping-<name>.json` holds the other name of `<name>`, and `..._reverse.json` the way
back. The shortest of all names of a person is the one we use.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gateway.routes.keys import whatsapp_name

_ACCOUNT = re.compile(r"[\w.-]{1,64}")
_MOST_NAMES = 16


class WhatsappNames:
    """From any name of an account to its one name. Files are read at each question: a mapping may be new."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "whatsapp" / "session"

    def __call__(self, name: str) -> str:
        start = whatsapp_name(name)
        known, waiting = {start}, [start]
        while waiting and len(known) < _MOST_NAMES:
            for other in self._others(waiting.pop()) - known:
                known.add(other)
                waiting.append(other)
        return min(known, key=lambda account: (len(account), account))

    def _others(self, account: str) -> set[str]:
        if not _ACCOUNT.fullmatch(account):  # an outside id becomes part of a file name only when it is plain
            return set()
        found = (self._mapped(f"lid-mapping-{account}{suffix}.json") for suffix in ("", "_reverse"))
        return {whatsapp_name(other) for other in found if other}

    def _mapped(self, file: str) -> str:
        try:
            other = json.loads((self._folder / file).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # most accounts have no file
            return ""
        return other if isinstance(other, str) else ""
