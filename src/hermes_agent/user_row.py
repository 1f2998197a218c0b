"""The row for a person's words, and what the model gets beside them: stored as it is sent, so the bytes stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_state import columns as values

Content = str | list[Any]


def made(message: Content, *, persist: Content | None, added: str, **columns: Any) -> dict[str, Any]:
    """`persist` is stored as the person's words in the place of `message`; `added` is for the model alone."""
    words, stored = _words(message), message if persist is None else persist
    if persist is not None and (pictures := _pictures(message)):
        # They are sent from the row's content, so they have to be there.
        stored = [{"type": "text", "text": _words(persist)}, *pictures]
    row: dict[str, Any] = {"role": "user", "content": stored, **columns}
    if added or words != _words(stored):
        row["api_content"] = f"{words}\n\n{added}" if added else words
    return row


def _words(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(filter(None, map(values.text_of, content)))


def _pictures(content: Content) -> list[Any]:
    parts = () if isinstance(content, str) else content
    return [part for part in parts if isinstance(part, Mapping) and "text" not in part]
