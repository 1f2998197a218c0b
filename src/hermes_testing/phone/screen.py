"""What the pretend phone shows: a chat as lines of text, bubbles left and right, buttons with numbers. Pure.

`lines(chat, width, style)` turns what `telegram.client` sees into lines; the terminal part shows the last of them
that fit. Everything that came from somebody is made harmless first: no escape sequence of a message reaches the
terminal.
"""

from __future__ import annotations

import itertools
import re
import time
import unicodedata
from dataclasses import dataclass
from typing import Any

from hermes_cli.framework.text import pad, shorten, size
from hermes_cli.framework.text import width as width_of
from hermes_testing.telegram.answers import Json

_WIDEST = 64
_RESET = "\x1b[0m"
_CODES = {
    "bold": "1", "italic": "3", "underline": "4", "strikethrough": "9", "code": "36", "pre": "36", "text_link": "4;34",
    "url": "4;34", "bot_command": "34", "mention": "34", "blockquote": "2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none of them."""

    colour: bool = True

    def paint(self, text: str, codes: str) -> str:
        return f"\x1b[{codes}m{text}{_RESET}" if self.colour and text else text


def harmless(text: str) -> str:
    """Replace control characters and direction marks; the length stays."""
    kept = (character if unicodedata.category(character) not in ("Cc", "Cf") or character in "\n\u200d" else "·"
            for character in text.replace("\t", " "))  # fmt: skip
    return "".join(kept)


def buttons(messages: list[Json]) -> list[tuple[int, Json]]:
    """The buttons of the newest message that has some, with its id, in the order of their numbers."""
    for message in reversed(messages):
        found = [button for row in message["buttons"] for button in row]
        if found:
            return [(message["id"], button) for button in found]
    return []


def lines(chat: Json, width: int, style: Style) -> list[str]:
    """The whole chat, oldest line first."""
    messages = chat["messages"]
    if not messages:
        return [
            style.paint(f"Nothing yet. Write to {harmless(chat['title'])}.".center(width).rstrip(), "2"),
            "",
        ]
    pressable = buttons(messages)
    pressable_id = pressable[0][0] if pressable else None
    shown: list[str] = []
    day = ""
    for message in messages:
        date = time.strftime("%A %d %B", time.localtime(message["date"]))
        if date != day:
            day = date
            shown += ["", style.paint(date.center(width).rstrip(), "2"), ""]
        shown += _bubble(message, messages, width, style, numbered=message["id"] == pressable_id)
        shown.append("")
    return shown


def _bubble(message: Json, messages: list[Json], width: int, style: Style, *, numbered: bool) -> list[str]:
    most = min(_WIDEST, width - 8)
    head = _replied(message, messages, most)
    text = harmless(message["text"])
    body = [(line, line) for line in _file(message)]
    body += [(text[a:b], _painted(text, a, b, message["entities"], style)) for a, b in _wrapped(text, most)]
    foot = time.strftime("%H:%M", time.localtime(message["date"])) + (" edited" if message["edits"] else "")
    if message["mine"]:
        foot += " ✓"
    inner = max(width_of(line) for line in (*head, *(line for line, _painted in body), foot))
    side, edge = ("34", "▐") if message["mine"] else ("32", "▌")
    foot = pad(foot, inner, right=True)
    rows = [*((line, style.paint(line, "2")) for line in head), *body, (foot, style.paint(foot, "2"))]
    indent = width - inner - 4 if message["mine"] else 2
    shown = []
    for line, painted in rows:
        filled = painted + " " * (inner - width_of(line))
        bar = style.paint(edge, side)
        shown.append(" " * indent + (f"{filled} {bar}" if message["mine"] else f"{bar} {filled}").rstrip())
    if not message["mine"]:
        shown.insert(0, "  " + style.paint(harmless(message["sender"]), "1;32"))
        shown += _keyboard(message["buttons"], style, numbered=numbered)
    return shown


def _replied(message: Json, messages: list[Json], most: int) -> list[str]:
    for other in messages:
        if other["id"] == message["reply_to"]:
            quoted = harmless(other["text"]).partition("\n")[0]
            return [shorten(f"↪ {harmless(other['sender'])}: {quoted}", most)]
    return []


def _file(message: Json) -> list[str]:
    file = message["file"]
    if file is None:
        return []
    signs = {"photo": "🖼", "voice": "🎤", "document": "📎"}
    return [f"{signs[file['kind']]} {harmless(file['name'])} · {size(file['size'])}"]


def _keyboard(rows: list[list[Json]], style: Style, *, numbered: bool) -> list[str]:
    shown, number = [], 0
    for row in rows:
        labels = []
        for button in row:
            number += 1
            sign = f"{number} " if numbered else ""
            labels.append(style.paint(f"[{sign}{harmless(button['text'])}]", "1;36" if numbered else "2"))
        shown.append("    " + "  ".join(labels))
    return shown


def _wrapped(text: str, most: int) -> list[tuple[int, int]]:
    """Return the start and end of each wrapped line: broken at spaces if possible, else by columns."""
    shown: list[tuple[int, int]] = []
    start = 0
    for line in text.split("\n") if text else []:
        stop = start + len(line)
        at = start
        while width_of(text[at:stop]) > most:
            fits = at
            while width_of(text[at : fits + 1]) <= most:
                fits += 1
            space = text.rfind(" ", at + 1, fits + 1)
            cut = space if space > 0 and text[at:space].strip() else fits
            shown.append((at, cut))
            at = cut + 1 if text[cut] == " " else cut
        shown.append((at, stop))
        start = stop + 1
    return shown


def _painted(text: str, start: int, stop: int, entities: list[Json], style: Style) -> str:
    """A piece of a text with its bold, italic and code parts in their colours."""
    if not style.colour or not entities:
        return text[start:stop]
    codes: list[str] = [""] * (stop - start)
    for entity in entities:
        if code := _CODES.get(entity["type"]):
            begin = _index(text, entity["offset"])
            end = _index(text, entity["offset"] + entity["length"])
            for place in range(max(begin, start), min(end, stop)):
                codes[place - start] += f";{code}"
    runs = itertools.groupby(range(start, stop), key=lambda place: codes[place - start])
    return "".join(style.paint("".join(text[place] for place in run), code[1:]) if code else
                   "".join(text[place] for place in run) for code, run in runs)  # fmt: skip


def _index(text: str, units: int) -> int:
    """Return the index of the character after this many UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")[: units * 2].decode("utf-16-le", "ignore"))


def doing(chat: Json) -> str:
    """Describe what the bot is doing."""
    action = chat["action"]
    if not action:
        return ""
    words = {"typing": "is typing", "upload_document": "is sending a file", "upload_photo": "is sending a picture"}
    return f"{harmless(chat['title'])} {words.get(action, 'is busy')}…"


def plain(message: Json, *, again: bool) -> str:
    """Return one message as text for a pipe."""
    text = "\n".join([*_file(message), harmless(message["text"])]) if message["file"] else harmless(message["text"])
    mark = " (edited)" if again else ""
    said = re.sub(r"\n", "\n    ", text)
    rows = [f"{harmless(message['sender'])}{mark}: {said}"]
    labels: list[Any] = [button["text"] for row in message["buttons"] for button in row]
    rows += [f"    [{number}] {harmless(label)}" for number, label in enumerate(labels, 1)]
    return "\n".join(rows)
