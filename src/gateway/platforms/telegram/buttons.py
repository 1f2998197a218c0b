"""The data of a button: its answer with a signature (a *seal*), within Telegram's 64 bytes.

A modified client can send data of buttons that no message ever showed. So the data carries a seal: an HMAC of the chat
and the answer, with a key made from the bot's token. Data without the right seal was not sent to this chat by us and is
ignored. Seals are not stored, so a restart changes nothing. A seal gives no rights: Telegram says who pressed the
button, and later code decides whether that person may.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Literal

from gateway.platforms.base import Answer

MOST_BYTES = 64
_KINDS: dict[str, Literal["approval", "clarify", "command"]] = {"a": "approval", "c": "clarify", "k": "command"}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}
_SEAL_BYTES = 8


class Seal:
    """Writes and reads the data of buttons for one bot."""

    def __init__(self, token: str) -> None:
        self._key = hashlib.sha256(b"hermes buttons\0" + token.encode()).digest()

    def write(self, chat_id: str, answer: Answer) -> str | None:
        """The data for a button; None when the answer is too long for one."""
        if "|" in answer.choice:
            return None
        letter = _LETTERS[answer.kind]
        data = f"{letter}|{self._seal(chat_id, letter, answer)}|{answer.choice}|{answer.id}"
        return data if len(data.encode()) <= MOST_BYTES else None

    def read(self, chat_id: str, data: str) -> Answer | None:
        """The answer in a button's data; None when we did not write it for this chat."""
        parts = data.split("|", 3)
        if len(parts) != 4 or parts[0] not in _KINDS:
            return None
        letter, seal, choice, number = parts
        answer = Answer(kind=_KINDS[letter], id=number, choice=choice)
        expected = self._seal(chat_id, letter, answer)
        return answer if hmac.compare_digest(seal.encode(), expected.encode()) else None

    def _seal(self, chat_id: str, letter: str, answer: Answer) -> str:
        said = "\0".join((chat_id, letter, answer.choice, answer.id)).encode()
        digest = hmac.new(self._key, said, hashlib.sha256).digest()[:_SEAL_BYTES]
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
